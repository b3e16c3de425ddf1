"""Checkpoint directories: there and back, through transformers, and damaged ones."""

import dataclasses
import json

import jax
import ml_dtypes
import numpy as np
import pytest

from tests.models.qwen25vl import inputs, oracle
from vade_jax.models.qwen25vl import config, files, model, weights

SMALL = oracle.blocks(
    oracle.text(config.PRESETS["tiny"], num_layers=2), depth=2, full_blocks=(1,)
)


@pytest.fixture(scope="module")
def params():
    return weights.to_params(SMALL, oracle.random_tensors(SMALL, 0))


def assert_equal(x, y):
    jax.tree.map(np.testing.assert_array_equal, x, y)


@pytest.mark.parametrize("shard_bytes", [10**9, 10**6])
def test_round_trip(tmp_path, params, shard_bytes):
    files.save(tmp_path / "hf", SMALL, params, shard_bytes=shard_bytes)
    names = {path.name for path in (tmp_path / "hf").iterdir()}
    assert ("model.safetensors" in names) == (shard_bytes == 10**9)
    assert (files.INDEX in names) == (shard_bytes != 10**9)
    shape, again = files.load(tmp_path / "hf")
    assert shape == SMALL
    assert_equal(again, params)


def test_the_config_is_read_without_the_weights(tmp_path, params):
    files.save(tmp_path / "hf", SMALL, params)
    (tmp_path / "hf" / files.SINGLE).unlink()
    assert files.load_config(tmp_path / "hf") == SMALL
    with pytest.raises(
        FileNotFoundError, match="none is no directory: give the folder"
    ):
        files.load_config(tmp_path / "none")


def test_bfloat16_is_kept(tmp_path, params):
    files.save(tmp_path / "hf", SMALL, params, ml_dtypes.bfloat16)
    fields = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert fields["torch_dtype"] == "bfloat16"
    _, again = files.load(tmp_path / "hf")
    rounded = jax.tree.map(
        lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32), params
    )
    assert_equal(again, rounded)
    _, as_stored = files.load(tmp_path / "hf", ml_dtypes.bfloat16)
    assert as_stored["embedding"].dtype == ml_dtypes.bfloat16


def test_saving_again_replaces_weights_and_keeps_the_tokenizer(tmp_path, params):
    files.save(tmp_path / "hf", SMALL, params, shard_bytes=10**6)
    (tmp_path / "hf" / "tokenizer.json").write_text("{}")
    doubled = jax.tree.map(lambda x: 2 * x, params)
    files.save(tmp_path / "hf", SMALL, doubled)
    assert_equal(files.load(tmp_path / "hf")[1], doubled)
    names = sorted(path.name for path in (tmp_path / "hf").iterdir())
    assert names == ["config.json", "model.safetensors", "tokenizer.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_a_failed_save_leaves_the_old_one(tmp_path, params):
    files.save(tmp_path / "hf", SMALL, params)
    broken = {**params, "embedding": np.zeros((3, 3), np.float32)}
    with pytest.raises(ValueError, match="embedding has shape"):
        files.save(tmp_path / "hf", SMALL, broken)
    assert_equal(files.load(tmp_path / "hf")[1], params)
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_ours_and_we_load_theirs(tmp_path, tied):
    """Export, their logits, their export (other layout of config.json), our import."""
    transformers = pytest.importorskip("transformers")
    shape = dataclasses.replace(SMALL, tie_embeddings=tied)
    params = weights.to_params(shape, oracle.random_tensors(shape, 1))
    files.save(tmp_path / "ours", shape, params)
    reference, report = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys"))
    rng = np.random.default_rng(0)
    example = inputs.example(rng, [(3, 5)], shape.image_token_id, 9)
    (expected,), _ = oracle.forward(
        reference.eval(), [example], inputs.processor_pixels, shape.image_token_id
    )
    with jax.default_matmul_precision("highest"):
        qwen = model.merge(model.graph(shape), params)
        hidden = jax.jit(qwen.hidden)(inputs.batch([example], shape.image_token_id))
        np.testing.assert_allclose(qwen.logits(hidden)[0], expected, atol=2e-5, rtol=0)
    reference.save_pretrained(tmp_path / "theirs")
    assert "text_config" in json.loads(
        (tmp_path / "theirs" / "config.json").read_text()
    )
    again, loaded = files.load(tmp_path / "theirs")
    assert again.text == shape.text and again.tie_embeddings == tied
    assert_equal(loaded, params)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def edit(path, **fields):
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (
            lambda d: d.rename(d.with_name("x")),
            FileNotFoundError,
            "hf is no directory: give",
        ),
        (
            lambda d: (d / "config.json").unlink(),
            FileNotFoundError,
            "config.json is missing",
        ),
        (
            lambda d: (d / "config.json").write_text("{"),
            ValueError,
            "config.json is no JSON",
        ),
        (
            lambda d: edit(d / "config.json", model_type="llama"),
            ValueError,
            "config.json: config.json describes .*'llama'",
        ),
        (
            lambda d: (d / files.SINGLE).unlink(),
            FileNotFoundError,
            "lacks model.safetensors",
        ),
        (
            lambda d: cut(d / files.SINGLE),
            ValueError,
            "model.safetensors is damaged or cut",
        ),
        (
            lambda d: (d / files.SINGLE).write_bytes(b""),
            ValueError,
            "is damaged or cut",
        ),
        (
            lambda d: (d / files.INDEX).write_text(
                '{"weight_map": {"x": "a.safetensors"}}'
            ),
            FileNotFoundError,
            "lacks a.safetensors",
        ),
        (
            lambda d: edit(d / "config.json", intermediate_size=100),
            ValueError,
            r"hf: .*mlp.gate_proj.weight has shape \(352, 128\), expected \(100, 128\)",
        ),
    ],
)
def test_damaged_directories(tmp_path, params, damage, error, message):
    files.save(tmp_path / "hf", SMALL, params)
    damage(tmp_path / "hf")
    with pytest.raises(error, match=message):
        files.load(tmp_path / "hf")
