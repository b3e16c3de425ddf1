"""What is written is what was given, whole, within bounds, and only the newest stays."""

import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors
import safetensors.numpy

from vade_jax.rollout.vllm import sync

FLOAT32 = np.dtype(np.float32)


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
def test_every_tensor_comes_back(tmp_path, monkeypatch, shard_bytes):
    monkeypatch.setattr(sync, "SHARD_BYTES", shard_bytes)
    path = sync.write(tensors().items(), tmp_path / "w", 3, FLOAT32)
    assert_equal(read(path), tensors())
    files = sorted(pathlib.Path(path).glob("*.safetensors"))
    assert len(files) == {1: 4, 70: 3, 10_000: 1}[shard_bytes]  # 48, 20, 48, 48 bytes
    with safetensors.safe_open(files[0], "np") as file:
        assert file.metadata() == {"format": "pt"}
    assert files[0].stat().st_mode & 0o444 == 0o444  # a server may run as another user


def test_arrays_of_jax_are_written_as_bfloat16(tmp_path):
    """Each is gathered from the devices that hold it."""
    split = jax.NamedSharding(jax.make_mesh((4,), ("x",)), jax.P("x"))
    shared = jax.device_put(jnp.arange(16.0).reshape(8, 2), split)
    given = {name: jnp.asarray(x).T for name, x in tensors().items()} | {"split": shared}
    path = sync.write(given.items(), tmp_path / "w", 0, np.dtype(jnp.bfloat16))
    assert_equal(read(path), {n: np.asarray(x).astype(jnp.bfloat16) for n, x in given.items()})


@pytest.mark.parametrize("version", [5, 6])
def test_only_the_newest_is_kept(tmp_path, version):
    """What a killed run left goes as well."""
    sync.write(tensors(1).items(), tmp_path / "w", 5, FLOAT32)
    assert_equal(read(sync.write(tensors(2).items(), tmp_path / "w", version, FLOAT32)), tensors(2))
    assert [x.name for x in (tmp_path / "w").iterdir()] == [f"version_0000000{version}"]
