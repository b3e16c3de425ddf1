"""A checksum is of values and places alone: any shard order, any device, no value twice."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from vade_jax.store import checksums


def expected(x):
    """The documented sum, with Python's integers."""
    size = min(x.dtype.itemsize, 4)
    total = 0
    for place, bits in enumerate(np.atleast_1d(x).view(f"u{size}").ravel().tolist()):
        h = bits ^ (place * 0x9E3779B1 % 2**32)
        h = (h ^ (h >> 16)) * 0x85EBCA6B % 2**32
        h = (h ^ (h >> 13)) * 0xC2B2AE35 % 2**32
        total += h ^ (h >> 16)
    return total % 2**32


ARRAYS = {
    "float32": np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4),
    "bfloat16": np.linspace(-3, 3, 6).astype(ml_dtypes.bfloat16).reshape(3, 2),
    "bool": np.array([True, False, True]),
    "int64": np.array([[1, -(2**40)]]),
    "scalar": np.int32(-7),
    "empty": np.zeros((0, 3), np.float32),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_the_sum_is_the_documented_one(name):
    x = ARRAYS[name]
    assert checksums.of_array(x) == expected(np.asarray(x))
    if name != "int64":  # which jax has not
        assert checksums.of_array(jax.device_put(x, jax.devices()[0])) == expected(np.asarray(x))


def test_a_sharded_array_has_the_sum_of_the_whole_one():
    mesh = jax.make_mesh((2, 4), ("data", "fsdp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    x = np.random.default_rng(0).normal(size=(8, 6)).astype(np.float32)
    for spec in (("fsdp", "data"), ("data",), ()):
        sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*spec))
        for kind in ("device", "pinned_host"):
            placed = jax.device_put(x, sharding.with_memory_kind(kind))
            assert checksums.of_array(placed) == expected(x)


@pytest.mark.parametrize("bit", [0, 1, 31])
def test_any_changed_bit_and_any_two_values_that_changed_places_are_seen(bit):
    x = np.zeros((5, 7), np.uint32)
    before = checksums.of_array(x)
    x[3, 2] ^= np.uint32(1 << bit)
    one = checksums.of_array(x)
    assert one != before
    x[[3, 2]] = x[[2, 3]]
    assert checksums.of_array(jnp.asarray(x)) not in (one, before)


def test_of_json_the_order_of_keys_is_no_difference():
    assert checksums.of_json({"a": 1, "b": [2.5]}) == checksums.of_json({"b": [2.5], "a": 1})
    assert checksums.of_json({"a": 1}) != checksums.of_json({"a": 2})
