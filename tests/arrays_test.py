"""Masked means, bucketing, padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax import arrays


def test_masked_mean():
    x_NT = jnp.array([[1.0, 3, 9], [5, 7, 9]])
    mask_NT = jnp.array([[1.0, 1, 0], [1, 0, 0]])
    assert arrays.masked_mean(x_NT, mask_NT) == 3  # (1 + 3 + 5) / 3
    assert arrays.masked_mean(x_NT, mask_NT, axis=1).tolist() == [2, 5]
    assert arrays.masked_mean(x_NT, jnp.zeros((2, 3))) == 0


@pytest.mark.parametrize("width", [1, 32, 96, 100])  # of a multiple of 32 in two steps
def test_top_is_the_maximum_without_a_gradient(width):
    x_NV = np.random.default_rng(width).normal(size=(40, width)).astype(np.float32)
    x_NV[3, 1:] = -np.inf
    top, gradient = jax.vjp(jax.jit(arrays.top), x_NV)
    np.testing.assert_array_equal(top, x_NV.max(-1, keepdims=True))
    assert not np.any(gradient(top)[0])


def test_rounded_is_the_nearest_of_the_dtype_and_nothing_where_that_is_as_wide():
    # The first two are ties to even.
    x_N = np.float32([1 + 2**-8, 1 + 2**-7 + 2**-8, 1 + 2**-8 + 2**-20, -3e-40, np.inf])
    got_N = jax.jit(lambda x: arrays.rounded(x, jnp.bfloat16))(x_N)
    assert got_N.dtype == jnp.bfloat16
    np.testing.assert_array_equal(got_N, x_N.astype(jnp.bfloat16))
    np.testing.assert_array_equal(arrays.rounded(got_N, jnp.float32), got_N.astype(np.float32))
    assert "reduce_precision" not in str(
        jax.make_jaxpr(lambda x: arrays.rounded(x, jnp.float32))(x_N)
    )


@pytest.mark.parametrize("make", [np.array, jnp.array])
def test_varies(make):
    """On the host and in JAX: mixed; equal once the invalid one is gone; alone; empty."""
    x_N, group_N = make([0.0, 1, 1, 1, 0, 3]), make([0, 0, 1, 1, 1, 3])
    valid_N = make([True, True, True, True, False, True])
    varies_M = arrays.varies(x_N, group_N, 5, valid_N)
    assert isinstance(varies_M, np.ndarray) == (make is np.array)
    assert varies_M.tolist() == [True, False, False, False, False]


@pytest.mark.parametrize("multiple", [1, 16, 28])
def test_buckets_hold_their_size_and_are_few(multiple):
    sizes = np.arange(1, 5000)
    buckets = np.array([arrays.bucket(int(size), multiple) for size in sizes])
    assert np.all(buckets >= sizes) and np.all(buckets % multiple == 0)
    large = sizes > 2 * multiple
    assert np.all((buckets[large] - sizes[large]) / buckets[large] <= 1 / 3)
    assert len(np.unique(buckets)) <= 2 * np.log2(5000 / multiple) + 3


def test_pad_rows():
    padded = arrays.pad_rows(np.array([[1, 2]], np.int32), 3, -1)
    assert padded.tolist() == [[1, 2], [-1, -1], [-1, -1]]
    assert padded.dtype == np.int32
    with pytest.raises(ValueError, match="negative"):
        arrays.pad_rows(np.zeros(4), 3)


@pytest.mark.parametrize("num_items", [5, 256, 300, 600])
def test_items_in_two_parts_are_those_at_once(num_items):
    x_I, y_I = np.random.default_rng(0).random((2, num_items), np.float32)
    found = arrays.in_two(lambda x, y: 2 * x + y, x_I, y_I)
    np.testing.assert_allclose(found, 2 * x_I + y_I, rtol=1e-6)
    assert len(arrays.padded(x_I)) % 256 == 0 and len(arrays.padded(x_I)) - num_items < 256
