"""An adapter against a model with merged kernels, its first values, and what PEFT makes of its files."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.models.qwen import inputs, oracle
from tests.trainer import small
from vade_jax import settings
from vade_jax.models.qwen import config_json, files, lora, model, peft, weights
from vade_jax.rollout import local
from vade_jax.trainer import mesh

SHAPE = small.SHAPE
WANTED = settings.Lora(rank=3, alpha=6.0, targets="q_proj|down_proj|qkv|merger", vision=True)
ADAPTER = peft.choose(WANTED, SHAPE)
PATHS = (
    *("text/layers/attention/query", "text/layers/mlp/down"),
    *("vision/blocks/qkv", "vision/blocks/mlp/down", "vision/merger/up", "vision/merger/down"),
)


@pytest.fixture(autouse=True)
def exact_matmuls():
    with jax.default_matmul_precision("highest"):
        yield


@functools.cache
def learned():
    """The base, and an adapter in which B too has values."""
    _, abstract = lora.split(model.abstract(SHAPE, adapter=ADAPTER))
    rng = np.random.default_rng(3)
    adapter = jax.tree.map(lambda x: 0.1 * rng.standard_normal(x.shape, np.float32), abstract)
    return jax.tree.map(np.asarray, small.params()), adapter


def merged(base, adapter):
    """The base with W + 6 / 3 A B in the place of W, layer by layer in float64."""
    base = jax.tree.map(np.copy, base)
    for path in PATHS:
        beside = weights.get(base, path)
        both = weights.get(adapter, path)["lora"]
        a, b = (np.float64(both[name]) for name in ("lora_a", "lora_b"))
        more = 2 * np.einsum("...ir,...ro->...io", a, b)
        beside["kernel"] = (beside["kernel"] + more).astype(np.float32)
    return base


def adapted(params):
    return model.merge(model.graph(SHAPE, adapter=ADAPTER), params)


def test_the_layers_are_those_whose_names_match():
    assert set(ADAPTER.paths) == set(PATHS)
    text = peft.choose(settings.Lora(rank=1), SHAPE)
    assert len(text.paths) == 7 and all(path.startswith("text/layers/") for path in text.paths)
    assert len(peft.choose(settings.Lora(rank=1, vision=True), SHAPE).paths) == 7 + 5 + 2


def test_targets_that_match_nothing():
    with pytest.raises(ValueError, match=r"lora.targets='qkw' is in no layer's name"):
        peft.choose(settings.Lora(rank=4, targets="qkw"))


@functools.partial(jax.jit, static_argnums=0)
def _forwards(merge, params, apart):
    prompts = inputs.batch(small.examples(3), SHAPE.image_token_id)
    token_NT = np.random.default_rng(0).integers(0, 300, (6, 4)).astype(np.int32)
    qwen = merge(params)
    last_MD, cache = qwen.prefill(prompts)
    rows = cache.apart()
    own = qwen.own_cache(rows, 2, 4)
    next_ND, _ = qwen.decode(apart, rows, own, token_NT[:, 0], jnp.int32(0))
    return qwen.hidden(prompts), qwen.answer_hidden(prompts, token_NT), last_MD, next_ND


APART = {merge: local.Apart(merge) for merge in (adapted, small.merge)}


def forwards(merge, params):
    return _forwards(merge, params, APART[merge](params))


def test_every_forward_is_that_of_the_merged_model():
    base, adapter = learned()
    whole, plain = lora.join(base, adapter, ADAPTER.scale), merged(base, adapter)
    found, expected = forwards(adapted, whole), forwards(small.merge, plain)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=3e-5)
    without = forwards(small.merge, base)
    assert np.abs(found[1] - without[1]).max() > 0.1


def test_an_adapter_starts_without_effect_and_is_drawn_as_pefts_is():
    base, _ = learned()
    _, abstract = lora.split(model.abstract(SHAPE, adapter=ADAPTER))
    first = lora.start(abstract, jax.random.key(0))
    flat = {mesh.path_name(path): x for path, x in jax.tree.leaves_with_path(first)}
    assert not any(x.any() for path, x in flat.items() if path.endswith("lora_b"))
    down = flat["text/layers/mlp/down/lora/lora_a"]  # of width 96
    assert down.shape == (2, 96, 3) and np.std(down) == pytest.approx((3 * 96) ** -0.5, rel=0.1)
    assert np.abs(down).max() <= 96**-0.5
    found, expected = forwards(adapted, lora.join(base, first, 2.0)), forwards(small.merge, base)
    np.testing.assert_array_equal(found[0], expected[0])


@pytest.mark.eight_devices
@pytest.mark.parametrize("on_devices", [False, True])
def test_exported_tensors_are_merged(on_devices):
    base, adapter = learned()
    whole = lora.join(base, adapter, ADAPTER.scale)
    if on_devices:
        whole = jax.device_put(whole, mesh.shardings(mesh.make(fsdp=4, tensor=2), whole))
    expected = dict(weights.from_params(SHAPE, merged(base, adapter)))
    found = dict(weights.from_params(SHAPE, whole))
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        np.testing.assert_allclose(tensor, expected[name], atol=1e-6, err_msg=name)


def test_transformers_and_peft_load_both_exports_and_say_the_same(tmp_path):
    import peft as theirs
    import transformers

    base, adapter = learned()
    whole = lora.join(base, adapter, ADAPTER.scale)
    files.save(tmp_path / "base", SHAPE, base)
    files.save(tmp_path / "merged", SHAPE, whole)
    peft.save(tmp_path / "adapter", SHAPE, ADAPTER, adapter, str(tmp_path / "base"))

    def load(directory):
        kind = transformers.Qwen2_5_VLForConditionalGeneration
        return kind.from_pretrained(directory, attn_implementation="eager").eval()

    adapted_theirs = theirs.PeftModel.from_pretrained(load(tmp_path / "base"), tmp_path / "adapter")
    targets = {
        name for name, _ in adapted_theirs.named_modules() if name.endswith("lora_A.default")
    }
    assert len(targets) == 2 * 2 + 2 * 2 + 2  # layers of the text, of the tower, and the merger's
    batch = small.examples(1)
    (merged_logits,), _ = oracle.forward(
        load(tmp_path / "merged"), batch, inputs.processor_pixels, SHAPE.image_token_id
    )
    (peft_logits,), _ = oracle.forward(
        adapted_theirs.get_base_model(), batch, inputs.processor_pixels, SHAPE.image_token_id
    )
    qwen = adapted(whole)
    ours = qwen.logits(jax.jit(qwen.hidden)(inputs.batch(batch, SHAPE.image_token_id)))[0]
    np.testing.assert_allclose(merged_logits, ours, atol=3e-5, rtol=0)
    np.testing.assert_allclose(peft_logits, ours, atol=3e-5, rtol=0)
    stored = json.loads((tmp_path / "adapter" / peft.CONFIG).read_text())
    assert (stored["r"], stored["lora_alpha"]) == (3, 6.0)


@pytest.mark.parametrize(
    ("shape", "targets", "count"),
    [
        # 2 layers of the text, 2 of the tower, its merger and the 2 of DeepStack, which are stacked
        (small.QWEN3VL, "q_proj|down_proj|qkv|linear_fc", 2 * 2 + 2 * 3 + 3 * 2),
        # 2 layers with attention and 2 linear ones; the tower as above
        (small.QWEN35, "q_proj|down_proj|in_proj|out_proj|qkv", 2 + 4 + 2 * 5 + 2),
    ],
    ids=["qwen3vl", "qwen3.5"],
)
def test_peft_loads_an_adapter_of_other_families(tmp_path, shape, targets, count):
    import peft as theirs
    import transformers

    adapter = peft.choose(settings.Lora(rank=3, alpha=6.0, targets=targets, vision=True), shape)
    rng, base = np.random.default_rng(3), small.params(shape=shape)
    _, abstract = lora.split(model.abstract(shape, adapter=adapter))
    learned = jax.tree.map(lambda x: 0.1 * rng.standard_normal(x.shape, np.float32), abstract)
    files.save(tmp_path / "base", shape, base)
    peft.save(tmp_path / "adapter", shape, adapter, learned, str(tmp_path / "base"))
    kind = getattr(transformers, config_json.write(shape)["architectures"][0])
    plain = kind.from_pretrained(tmp_path / "base", attn_implementation="eager").eval()
    adapted_theirs = theirs.PeftModel.from_pretrained(plain, tmp_path / "adapter")
    targets = [n for n, _ in adapted_theirs.named_modules() if n.endswith("lora_A.default")]
    assert len(targets) == count
    batch = small.examples(1, shape=shape)
    (expected,), _ = oracle.forward(
        adapted_theirs.get_base_model(), batch, inputs.processor_pixels, shape.image_token_id
    )
    whole = lora.join(base, learned, adapter.scale)
    qwen = model.merge(model.graph(shape, adapter=adapter), whole)
    ours = qwen.logits(jax.jit(qwen.hidden)(inputs.batch(batch, shape.image_token_id)))[0]
    np.testing.assert_allclose(expected, ours, atol=3e-5, rtol=0)
