"""Both layouts of config.json, and errors that name the value."""

import dataclasses

import pytest

from vade_jax.models.qwen import config_json, presets

TINY = presets.PRESETS["tiny"]
MIXED = {"layer_types": ["full_attention", "linear_attention"] * 2}


@pytest.mark.parametrize("name", presets.PRESETS)
def test_published_layout_round_trip(name):
    shape = presets.PRESETS[name]
    assert config_json.read(config_json.write(shape)) == shape


@pytest.mark.parametrize("name", presets.PRESETS)
def test_transformers_reads_ours_and_we_read_theirs(name):
    transformers = pytest.importorskip("transformers")
    shape = presets.PRESETS[name]
    theirs = transformers.AutoConfig.for_model(**config_json.write(shape))
    if shape.vision is None:
        assert theirs.hidden_size == shape.text.width
        assert getattr(theirs, "head_dim", shape.text.head_width) == shape.text.head_width
        assert config_json.read(theirs.to_dict()) == shape
        return
    assert theirs.text_config.hidden_size == shape.text.width
    assert theirs.text_config.rope_parameters["mrope_section"] == list(shape.text.mrope_section)
    if shape.vision.kind == "windowed":
        assert theirs.vision_config.fullatt_block_indexes == list(shape.vision.full_blocks)
    else:
        deepstack = getattr(
            theirs.vision_config, "deepstack_visual_indexes", []
        )  # Qwen3.5 has none
        assert deepstack == list(shape.vision.deepstack)
        assert theirs.text_config.head_dim == shape.text.head_width
    nested = theirs.to_dict()
    assert "hidden_size" not in nested and "text_config" in nested
    assert config_json.read(nested) == shape


def hf(**changes):
    fields = config_json.write(TINY)
    vision = {**fields["vision_config"], **changes.pop("vision", {})}
    return {**fields, "vision_config": vision, **changes}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (hf(model_type="qwen2_vl"), "qwen2_vl"),
        (hf(rope_scaling={"mrope_section": [4, 6, 7]}), r"\(4, 6, 7\) .*sum 16"),
        (hf(num_key_value_heads=3), "num_heads 4 must be a multiple of num_kv_heads 3"),
        (hf(use_sliding_window=True), "use_sliding_window"),
        (hf(image_token_id=512), "image_token_id 512 .* 512 rows"),
        (hf(vision={"patch_size": 16}), "patch_size must be 14, not 16"),
        (hf(vision={"fullatt_block_indexes": [1, 4]}), r"\[4\] are outside of depth 4"),
        *[(hf(model_type=x), x) for x in ("qwen3_5_moe", "qwen3_omni_moe", "qwen2_5_omni")],
        (hf(architectures=["Qwen2_5OmniModel"]), "Qwen2_5OmniModel"),
    ],
)
def test_errors_name_the_value(fields, message):
    with pytest.raises(ValueError, match=message):
        config_json.read(fields)


@pytest.mark.parametrize("layout", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize(
    ("types", "refused"),
    [
        ({"type": "mrope"}, ""),
        ({"rope_type": "default", "type": "mrope"}, ""),
        ({}, ""),
        ({"rope_type": "dynamic"}, "dynamic"),
    ],
)
def test_rotary_positions_are_plain(layout, types, refused):
    fields = hf() | {layout: {"mrope_section": [4, 6, 6], "factor": 4.0, **types}}
    if not refused:
        assert config_json.read(fields) == TINY
        return
    with pytest.raises(ValueError, match=f"rope scaling '{refused}' is not supported"):
        config_json.read(fields)


def hf3(text=(), vision=(), *, preset="tiny_qwen3vl", **changes):
    fields = config_json.write(presets.PRESETS[preset])
    nested = {"text_config": fields["text_config"] | dict(text)}
    return fields | nested | {"vision_config": fields["vision_config"] | dict(vision)} | changes


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (hf3(vision={"num_position_embeddings": 60}), "num_position_embeddings 60 is not the size"),
        (hf3(text={"attention_bias": True}), "attention_bias must be False, not True"),
        (
            hf3(text={"rope_scaling": {"mrope_section": [6, 5, 5], "mrope_interleaved": False}}),
            "mrope_interleaved must be True, not False",
        ),
        (hf3(quantization_config={"quant_method": "fp8"}), r"quantised \(fp8\): give a checkpoint"),
        (hf3(MIXED, preset="tiny_qwen3_5"), "layer_types .* equal blocks"),
    ],
)
def test_errors_of_qwen3vl(fields, message):
    with pytest.raises(ValueError, match=message):
        config_json.read(fields)


def test_a_size_without_a_name_is_read_from_its_file():
    """The 32B with a layer less: heads wider than width / num_heads."""
    sizes = {"hidden_size": 5120, "num_hidden_layers": 63, "num_attention_heads": 64}
    sizes |= {"num_key_value_heads": 8, "intermediate_size": 25600, "head_dim": 128}
    fields = config_json.write(presets.PRESETS["qwen3vl-8b"])
    fields["text_config"] |= sizes
    fields["vision_config"]["out_hidden_size"] = 5120
    shape = config_json.read(fields)
    assert (shape.text.head_width, shape.text.query_width, shape.text.num_layers) == (128, 8192, 63)
    assert shape.vision == presets.PRESETS["qwen3vl-8b"].vision
    assert shape not in presets.PRESETS.values()


def test_a_llama_may_name_its_rotation_by_the_older_key_and_no_first_token():
    fields = text("llama3.1-8b", bos_token_id=None)
    kind = fields["rope_scaling"].pop("rope_type")
    fields["rope_scaling"]["type"] = kind
    shape = config_json.read(fields)
    assert shape == dataclasses.replace(presets.PRESETS["llama3.1-8b"], bos_token_id=None)
    written = config_json.write(shape)
    assert "bos_token_id" not in written and written["eos_token_id"] == 128009


def test_axes_take_turns_as_in_transformers():
    """By hand: sections of 10, 6 and 4; and the published 24, 20, 20, where the last four turn with t."""
    shape = presets.PRESETS["tiny_qwen3vl"].text
    shape = dataclasses.replace(shape, mrope_section=(10, 6, 4), own_head_width=40)
    assert shape.axes == (0, 1, 2) * 4 + (0, 1, 0, 0, 1, 0, 0, 0)
    published = presets.PRESETS["qwen3vl-8b"].text.axes
    assert published == (0, 1, 2) * 20 + (0, 0, 0, 0)


def text(name, **changes):
    return {**config_json.write(presets.PRESETS[name]), **changes}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (text("tiny_qwen3", attention_bias=True), "attention_bias must be False, not True"),
        (text("tiny_llama", rope_theta=None), "no value for 'rope_theta'"),
    ],
)
def test_errors_of_text_models(fields, message):
    with pytest.raises(ValueError, match=message):
        config_json.read(fields)
