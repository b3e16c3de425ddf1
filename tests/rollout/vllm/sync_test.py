"""What is written is what was given, whole, within bounds, and only the newest stays."""

import pathlib
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from vade_jax.rollout.engine import EngineFailure
from vade_jax.rollout.vllm import sync
from vade_jax.rollout.vllm.sync import WeightDirectory


def tensors(seed=0, sizes=((3, 4), (5,), (2, 3, 2), (6, 2))):
    rng = np.random.default_rng(seed)
    return {f"t{i}": rng.normal(size=s).astype("f4") for i, s in enumerate(sizes)}


def read(path):
    """By the library."""
    found = {}
    for file in sorted(pathlib.Path(path).glob("*.safetensors")):
        found |= safetensors.numpy.load_file(file)
    return found


def assert_equal(found, expected):
    assert list(sorted(found)) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, strict=True)


@pytest.mark.parametrize("shard_bytes", [1, 70, 10_000])
def test_every_tensor_comes_back(tmp_path, shard_bytes):
    weights = WeightDirectory(tmp_path, np.float32, shard_bytes=shard_bytes)
    path = weights.write(tensors().items(), 3)
    assert_equal(read(path), tensors())
    files = sorted(pathlib.Path(path).glob("*.safetensors"))
    assert len(files) == {1: 4, 70: 3, 10_000: 1}[shard_bytes]  # 48, 20, 48, 48 bytes
    with safetensors.safe_open(files[0], "np") as file:
        assert file.metadata() == {"format": "pt"}
    assert files[0].stat().st_mode & 0o444 == 0o444  # a server may run as another user


def test_servers_are_given_an_absolute_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = WeightDirectory("runs/a/weights", np.float32).write(tensors().items(), 3)
    assert path == str(tmp_path / "runs/a/weights/version_00000003")


def test_arrays_of_jax_are_written_as_bfloat16(tmp_path):
    given = {name: jnp.asarray(x).T for name, x in tensors().items()}
    path = WeightDirectory(tmp_path, jnp.bfloat16).write(given.items(), 0)
    expected = {n: x.T.astype(jnp.bfloat16) for n, x in tensors().items()}
    assert_equal(read(path), expected)


def test_no_more_is_held_than_a_shard_and_a_tensor(tmp_path):
    stream = ((f"t{i}", np.full(250_000, i, np.float32)) for i in range(12))
    weights = WeightDirectory(tmp_path, np.float32, shard_bytes=3_000_000)
    tracemalloc.start()
    path = weights.write(stream, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_500_000
    assert len(list(pathlib.Path(path).glob("*.safetensors"))) == 4
    assert read(path)["t11"][-1] == 11


# ------------------------------------------------------------------------------ versions
def versions(path):
    return sorted(p.name for p in path.iterdir())


@pytest.mark.parametrize("version", [5, 6])
def test_only_the_newest_is_kept(tmp_path, version):
    weights = WeightDirectory(tmp_path, np.float32)
    weights.write(tensors(1).items(), 5)
    assert_equal(read(weights.write(tensors(2).items(), version)), tensors(2))
    assert versions(tmp_path) == [f"version_0000000{version}"]


def test_a_full_disk_is_named(tmp_path, monkeypatch):
    def full(*_, **__):
        raise safetensors.SafetensorError("No space left on device (os error 28)")

    monkeypatch.setattr(sync.safetensors_numpy, "save_file", full)
    weights = WeightDirectory(tmp_path, np.float32)
    with pytest.raises(EngineFailure, match=r"No space left on device.*free space"):
        weights.write(tensors().items(), 4)


def test_what_a_crash_left_is_cleared_and_nothing_else(tmp_path):
    weights = WeightDirectory(tmp_path / "deep" / "weights", np.float32)
    weights.write(tensors().items(), 1)
    (weights.path / "mine").mkdir()
    (weights.path / "version_notes").write_text("mine too")
    WeightDirectory(weights.path, np.float32)
    assert versions(weights.path) == ["mine", "version_notes"]
    weights.write(tensors().items(), 2)
    weights.clear()
    assert versions(weights.path) == ["mine", "version_notes"]


def test_sharded_arrays_are_gathered_one_by_one(tmp_path):
    mesh = jax.make_mesh((4,), ("x",))
    split = jax.NamedSharding(mesh, jax.P("x"))
    given = {"a": jnp.arange(16.0).reshape(8, 2)}
    placed = [(name, jax.device_put(x, split)) for name, x in given.items()]
    path = WeightDirectory(tmp_path, np.float32).write(placed, 0)
    np.testing.assert_array_equal(read(path)["a"], np.arange(16).reshape(8, 2))
