"""Reads and writes config.json, in which Hugging Face describes a model.

Two layouts are read: text fields at the root with `rope_scaling`, as published Qwen2.5-VL files have them,
and `text_config` with `rope_parameters`, which transformers 5 saves. Each family is written as published,
without values that are the default of transformers' class.
"""

import math
from collections.abc import Mapping
from typing import Any

from vade_jax.models.qwen.config import (
    FAMILIES,
    TOKEN_NAMES,
    VISION_THETA,
    VISION_TOKEN_NAMES,
    Config,
    LinearConfig,
    LongRope,
    TextConfig,
    VisionConfig,
)

# Our field -> Hugging Face's. Fields that are missing here (rotation, token ids) are converted in code.
_TEXT = {
    "vocab_size": "vocab_size",
    "width": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "mlp_width": "intermediate_size",
    "norm_eps": "rms_norm_eps",
    "max_positions": "max_position_embeddings",
}
_LINEAR = {
    "num_key_heads": "linear_num_key_heads",
    "num_heads": "linear_num_value_heads",
    "key_width": "linear_key_head_dim",
    "value_width": "linear_value_head_dim",
    "kernel": "linear_conv_kernel_dim",
}
_VISION = {
    "depth": "depth",
    "width": "hidden_size",
    "num_heads": "num_heads",
    "mlp_width": "intermediate_size",
}
_MERGED = {"spatial_merge_size": 2, "temporal_patch_size": 2}
# By tower. types.Images and the modules support only these values; all published checkpoints have them.
_FIXED: dict[str, dict[str, Any]] = {
    "windowed": {"patch_size": 14, **_MERGED, "window_size": 112, "hidden_act": "silu"},
    "plain": {"patch_size": 16, **_MERGED, "hidden_act": "gelu_pytorch_tanh"},
}
# Fields that may be missing. transformers 4.49 left out defaults of its class for Qwen2.5-VL, and the 32B and
# 72B are published so. Qwen3.5 has no DeepStack.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "windowed": {
        "depth": 32,
        "num_heads": 16,
        "intermediate_size": 3420,
        "fullatt_block_indexes": [7, 15, 23, 31],
        "out_hidden_size": 3584,
    },
    "plain": {"deepstack_visual_indexes": []},
}


class _Fields(dict[str, Any]):
    """Fields of a file that have a value. Reading any other field raises ValueError."""

    def __init__(self, fields: Mapping[str, Any] | None):
        super().__init__({k: v for k, v in (fields or {}).items() if v is not None})

    def __missing__(self, name: str) -> Any:
        raise ValueError(f"config.json has no value for {name!r}")

    def check(self, expected: Mapping[str, Any]) -> None:
        """Raises ValueError if an existing field differs from its expected value."""
        for name, value in expected.items():
            if (actual := self.get(name, value)) != value:
                raise ValueError(f"{name} must be {value!r}, not {actual!r:.80}")


# ------------------------------------------------------------------------------ reading
def read(fields: Mapping[str, Any]) -> Config:
    """Returns the config that a config.json describes, in the published or transformers 5's layout.

    Raises:
        ValueError: a field is missing or has a value that is not supported.
    """
    root, family = _Fields(fields), fields.get("model_type")
    named = root.get("architectures") or [family]
    if family not in FAMILIES or named[0] not in (FAMILIES[family].architecture, family):
        raise ValueError(
            f"config.json describes {named[0]!r} (model_type {family!r}); supported are "
            + ", ".join(f"{x.architecture!r} ({kind!r})" for kind, x in FAMILIES.items())
        )
    if quantized := root.get("quantization_config"):
        raise ValueError(
            f"the weights are quantised ({quantized.get('quant_method')}): give a checkpoint that is not"
        )
    # A nested field overrides one at the root unless it is null.
    text = _Fields(root | _Fields(root.get("text_config")))
    vision, names = None, TOKEN_NAMES
    if tower := FAMILIES[family].tower:
        vision = _read_vision(_Fields(root.get("vision_config")), tower, text["hidden_size"])
        names += VISION_TOKEN_NAMES
    if isinstance(ends := text.get("eos_token_id"), list):
        text["eos_token_id"] = ends[0]
    tokens = {name: text[name] for name in names if name in text}
    tied = root.get("tie_word_embeddings", text.get("tie_word_embeddings", False))
    return Config(_read_text(text, family), vision, tied, **tokens)


def _read_text(fields: _Fields, family: str) -> TextConfig:
    known = FAMILIES[family]
    fields.check({"use_sliding_window": False, "hidden_act": "silu", "mlp_bias": False})
    fields.check({"attention_bias": known.bias, "attn_output_gate": True})
    rope = _Fields(fields.get("rope_parameters") or fields.get("rope_scaling"))
    shape: dict[str, Any] = {ours: fields[hf] for ours, hf in _TEXT.items()}
    shape["bias"], shape["qk_norm"] = known.bias, known.qk_norm
    # No default: those of the families differ.
    shape["rope_theta"] = float((rope if "rope_theta" in rope else fields)["rope_theta"])
    usual = shape["width"] // shape["num_heads"]
    if (head_width := fields.get("head_dim", usual)) != usual:
        shape["own_head_width"] = head_width
    if known.is_hybrid:
        share = fields.get("partial_rotary_factor", 0.25)
        shape["rotary_share"] = rope.get("partial_rotary_factor", share)
        shape["interval"] = _read_interval(fields, shape["num_layers"])
        shape["linear"] = LinearConfig(**{ours: fields[hf] for ours, hf in _LINEAR.items()})
    section = (int(head_width * shape.get("rotary_share", 1)) // 2, 0, 0)
    # Published files name the kind of rotation `type`. transformers 5 names it `rope_type`, and M-RoPE
    # "default".
    kinds = {rope.get("rope_type"), rope.get("type")} - {None, "default"}
    if known.tower:
        section, kinds = tuple(rope["mrope_section"]), kinds - {"mrope"}
        shape["interleaved"] = known.tower == "plain"
        rope.check({"mrope_interleaved": shape["interleaved"]})
    if family == "llama" and kinds == {"llama3"}:
        shape["long_rope"] = LongRope(*(rope[name] for name in LongRope._fields))
    elif kinds:
        raise ValueError(
            f"rope scaling {min(map(str, kinds))!r} is not supported: only plain positions are"
        )
    return TextConfig(**shape, mrope_section=section)


def _read_interval(fields: _Fields, num_layers: int) -> int:
    """Returns the number of layers in a block; a file may have either field, or both."""
    interval, kinds = fields.get("full_attention_interval", 4), fields.get("layer_types")
    if kinds and "full_attention" in kinds:
        interval = kinds.index("full_attention") + 1
    if kinds and kinds != _layer_types(interval, num_layers):
        raise ValueError(
            f"layer_types {kinds!r:.80} are not equal blocks that end in 'full_attention'"
        )
    return interval


def _layer_types(interval: int, num_layers: int) -> list[str]:
    block = [*["linear_attention"] * (interval - 1), "full_attention"]
    return block * (num_layers // interval)


def _read_vision(fields: _Fields, tower: str, text_width: int) -> VisionConfig:
    fields = _Fields(_DEFAULTS[tower] | fields)
    # Published files have in_chans, transformers' own class in_channels. A file may have neither.
    fields.check({"out_hidden_size": text_width, "in_chans": 3, "in_channels": 3} | _FIXED[tower])
    shape: dict[str, Any] = {ours: fields[hf] for ours, hf in _VISION.items()}
    if tower == "windowed":
        return VisionConfig(**shape, full_blocks=tuple(fields["fullatt_block_indexes"]))
    rope = _Fields(fields.get("rope_parameters"))
    rope.check({"rope_type": "axial", "rope_theta": VISION_THETA})
    side = math.isqrt(num := fields["num_position_embeddings"])
    if side * side != num:
        raise ValueError(f"num_position_embeddings {num} is not the size of a square table")
    deepstack = tuple(fields["deepstack_visual_indexes"])
    return VisionConfig(**shape, table_side=side, deepstack=deepstack)


# ------------------------------------------------------------------------------ writing
def write(shape: Config) -> dict[str, Any]:
    """Returns the fields in the published layout, which vLLM and all versions of transformers read."""
    text, tower = _write_text(shape), FAMILIES[shape.family].tower
    tokens = shape.tokens()
    text |= {name: tokens[name] for name in TOKEN_NAMES if name in tokens}
    root: dict[str, Any] = {
        "architectures": [FAMILIES[shape.family].architecture],
        "model_type": shape.family,
        "tie_word_embeddings": shape.tie_embeddings,
    }
    if shape.vision is None:
        return root | text
    root |= {name: tokens[name] for name in VISION_TOKEN_NAMES}
    root["vision_config"] = {hf: getattr(shape.vision, ours) for ours, hf in _VISION.items()}
    root["vision_config"] |= _FIXED[tower]
    root["vision_config"] |= {"model_type": shape.family, "out_hidden_size": shape.text.width}
    if tower == "windowed":
        own = {"fullatt_block_indexes": list(shape.vision.full_blocks), "tokens_per_second": 2}
        root["vision_config"] |= own
        return root | text
    root["vision_config"]["num_position_embeddings"] = shape.vision.table_side**2
    if shape.text.linear is None:
        root["vision_config"]["deepstack_visual_indexes"] = list(shape.vision.deepstack)
    text["tie_word_embeddings"] = shape.tie_embeddings  # vLLM reads it here
    return root | {"text_config": text | {"model_type": f"{shape.family}_text"}}


def _write_text(shape: Config) -> dict[str, Any]:
    text, tower = shape.text, FAMILIES[shape.family].tower
    fields: dict[str, Any] = {hf: getattr(text, ours) for ours, hf in _TEXT.items()}
    fields |= {"hidden_act": "silu", "rope_theta": text.rope_theta}
    if not text.bias:
        # Without it, transformers' Qwen3 uses 128 for any width.
        fields["head_dim"] = text.head_width
    rope: dict[str, Any] = {}
    if text.long_rope:
        rope = {"rope_type": "llama3", **text.long_rope._asdict()}
    elif tower == "windowed":
        rope = {"type": "mrope", "mrope_section": list(text.mrope_section)}
    elif tower:
        rope = {"rope_type": "default", "mrope_section": list(text.mrope_section)}
        rope["mrope_interleaved"] = True
    if text.linear is None:
        return fields | ({"rope_scaling": rope} if rope else {})
    rope |= {"rope_type": "default", "rope_theta": text.rope_theta}
    rope["partial_rotary_factor"] = text.rotary_share
    fields |= {hf: getattr(text.linear, ours) for ours, hf in _LINEAR.items()}
    fields |= {"attn_output_gate": True, "full_attention_interval": text.interval}
    fields["mamba_ssm_dtype"] = "float32"  # of the states, in vLLM
    fields["layer_types"] = _layer_types(text.interval, text.num_layers)
    return fields | {"rope_parameters": rope}
