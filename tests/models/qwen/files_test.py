"""Checkpoint directories: there and back, through transformers, and damaged ones."""

import dataclasses
import json
import shutil
import socket
import subprocess
import sys

import jax
import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from tests.models.qwen import inputs, oracle
from tests.trainer import small
from vade_jax.models.qwen import files, model, presets, weights
from vade_jax.trainer import mesh

SMALL = oracle.blocks(oracle.text(presets.PRESETS["tiny"], num_layers=2), depth=2, full_blocks=(1,))


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


def test_bfloat16_is_kept(tmp_path, params):
    files.save(tmp_path / "hf", SMALL, params, ml_dtypes.bfloat16)
    fields = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert fields["torch_dtype"] == "bfloat16"
    _, again = files.load(tmp_path / "hf")
    rounded = jax.tree.map(lambda x: x.astype(ml_dtypes.bfloat16).astype(np.float32), params)
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
    assert names == ["checksums.json", "config.json", "model.safetensors", "tokenizer.json"]
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


def test_a_failed_save_leaves_the_old_one(tmp_path, params):
    files.save(tmp_path / "hf", SMALL, params)
    broken = {**params, "embedding": np.zeros((3, 3), np.float32)}
    with pytest.raises(ValueError, match="embedding has shape"):
        files.save(tmp_path / "hf", SMALL, broken)
    assert_equal(files.load(tmp_path / "hf")[1], params)
    assert [path.name for path in tmp_path.iterdir()] == ["hf"]


@pytest.mark.parametrize(
    "shape", [SMALL, small.QWEN3VL, small.QWEN35], ids=["qwen2.5", "qwen3", "qwen3.5"]
)
@pytest.mark.parametrize("tied", [True, False])
def test_transformers_loads_ours_and_we_load_theirs(tmp_path, shape, tied):
    """Export, their logits, their export (other layout of config.json), our import."""
    transformers = pytest.importorskip("transformers")
    shape = dataclasses.replace(shape, tie_embeddings=tied)
    params = weights.to_params(shape, oracle.random_tensors(shape, 1))
    files.save(tmp_path / "ours", shape, params)
    reference, report = transformers.AutoModelForImageTextToText.from_pretrained(
        tmp_path / "ours", attn_implementation="eager", output_loading_info=True
    )
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys"))
    rng = np.random.default_rng(0)
    example = inputs.example(rng, [(3, 5)], shape.image_token_id, 9, shape.vision.patch_size)
    (expected,), _ = oracle.forward(
        reference.eval(), [example], inputs.processor_pixels, shape.image_token_id
    )
    with jax.default_matmul_precision("highest"):
        qwen = model.merge(model.graph(shape), params)
        hidden = jax.jit(qwen.hidden)(inputs.batch([example], shape.image_token_id))
        np.testing.assert_allclose(qwen.logits(hidden)[0], expected, atol=4e-5, rtol=0)
    reference.save_pretrained(tmp_path / "theirs")
    assert "text_config" in json.loads((tmp_path / "theirs" / "config.json").read_text())
    again, loaded = files.load(tmp_path / "theirs")
    assert again.text == shape.text and again.tie_embeddings == tied
    assert_equal(loaded, params)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "checksums.json"])
def test_a_changed_byte_of_any_file_is_noticed(tmp_path, params, name):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "tokenizer.json").write_text('{"vocab": 1}')
    files.save(tmp_path / "hf", SMALL, params)
    files.check(tmp_path / "hf")
    content = bytearray((tmp_path / "hf" / name).read_bytes())
    content[-5] ^= 1
    (tmp_path / "hf" / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"{tmp_path / 'hf'}.*delete|download"):
        files.check(tmp_path / "hf")
    (tmp_path / "hf" / files.CHECKSUMS).unlink()
    files.check(tmp_path / "hf")  # somebody else's


def test_a_model_with_other_weights_has_another_identity(tmp_path):
    """Whatever its size; the values of the last tensor alone, its type, and what a save has summed."""
    tensors = {"a": np.ones((70, 100), np.float32), "b": np.float32([1, 2, 3])}
    (tmp_path / "config.json").write_text("{}")

    def identity(**changes):
        safetensors.numpy.save_file(tensors | changes, tmp_path / files.SINGLE)
        return files.identity(tmp_path)

    found = [
        identity(),
        identity(b=np.float32([1.5, 3, 4.5])),
        identity(b=np.int32([1, 2, 3]).view("f4")),
    ]
    found += [identity(a=1.5 * tensors["a"]), identity(b=np.float16([1, 2, 3]))]
    (tmp_path / files.CHECKSUMS).write_text("{}")
    found.append(identity())
    assert len(set(found)) == len(found)
    assert identity() == found[-1]


def test_loaded_parameters_outlive_their_files(tmp_path, params):
    """Nothing stays a view of the mapped file: a checkpoint may be replaced in place."""
    files.save(tmp_path / "hf", SMALL, params)
    where = mesh.shardings(mesh.make(), model.abstract(SMALL))
    loaded = [files.load(tmp_path / "hf", np.float32, s)[1] for s in (None, where)]
    path = tmp_path / "hf" / files.SINGLE
    with open(path, "r+b") as file:
        file.write(bytes(path.stat().st_size))
    for found in loaded:
        assert_equal(found, params)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def quantise(path):
    safetensors.numpy.save_file({"x": np.zeros(3, np.int8)}, path)


def first_shard(directory):
    return min(directory.glob("*.safetensors"))


def write(name, text):
    return lambda d: (d / name).write_text(text)


GONE, WRONG = FileNotFoundError, ValueError
ONE_FILE = [
    (lambda d: (d / "config.json").unlink(), GONE, "config.json is missing"),
    (write("config.json", "{"), WRONG, "config.json is not JSON"),
    (lambda d: (d / files.SINGLE).unlink(), GONE, "lacks model.safetensors"),
    (lambda d: cut(d / files.SINGLE), WRONG, "model.safetensors is damaged, cut"),
    (lambda d: quantise(d / files.SINGLE), WRONG, "has type I8.* is not quantised"),
]
SHARDS = [
    (lambda d: first_shard(d).unlink(), GONE, "lacks model-00001-of-"),
    (lambda d: cut(first_shard(d)), WRONG, "model-00001.* is damaged, cut"),
]


@pytest.mark.parametrize(
    ("shard_bytes", "damage", "error", "message"),
    [(10**9, *case) for case in ONE_FILE] + [(10**6, *case) for case in SHARDS],
)
def test_damage(tmp_path, params, shard_bytes, damage, error, message, monkeypatch):
    """Found before a single value is read."""
    files.save(tmp_path / "hf", SMALL, params, shard_bytes=shard_bytes)
    damage(tmp_path / "hf")
    monkeypatch.setattr(weights, "to_params", None)
    with pytest.raises(error, match=message):
        files.load(tmp_path / "hf")


MEMBER = """
import sys

import jax

source, target, address, number = sys.argv[1:]
jax.config.update("jax_num_cpu_devices", 2)
jax.distributed.initialize(address, 2, int(number))

from vade_jax.models.qwen import files, model
from vade_jax.trainer import mesh

abstract = model.abstract(files.load_config(source))
where = mesh.shardings(mesh.make(fsdp=2, tensor=2), abstract)
shape, params = files.load(source, "float32", where)
assert not params["embedding"].is_fully_addressable
files.save(target, shape, params, shard_bytes=10**6, write=number == "0")
"""


@pytest.mark.slow
def test_two_processes_load_their_parts_and_one_writes(tmp_path, params):
    files.save(tmp_path / "hf", SMALL, params, shard_bytes=10**6)
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
    members = []
    for i in range(2):
        command = [sys.executable, "-c", MEMBER, tmp_path / "hf", tmp_path / f"x{i}"]
        members.append(subprocess.Popen([*command, address, str(i)]))
    try:
        assert [member.wait(200) for member in members] == [0, 0]
    finally:
        for member in members:
            member.kill()
    assert not (tmp_path / "x1").exists()
    for path in (tmp_path / "hf").iterdir():
        assert path.read_bytes() == (tmp_path / "x0" / path.name).read_bytes(), path


def test_the_preprocessor_of_another_family_is_refused_before_any_weight(
    small_checkpoint, tmp_path
):
    for name in ("config.json", "preprocessor_config.json"):
        shutil.copy(small_checkpoint / name, tmp_path)
    files.load_config(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"patch_size": 16}))
    with pytest.raises(ValueError, match="patch_size is 16, but a qwen2_5_vl has 14: "):
        files.load_config(tmp_path)
