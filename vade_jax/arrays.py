"""Masked and segment reductions, and padding to a few fixed sizes."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.types import Array


def masked_mean(x: Array, mask: Array, axis: int | None = None) -> jax.Array:
    """Returns the mean of `x` where `mask` is 1, and 0 where nothing is selected."""
    return jnp.sum(x * mask, axis) / jnp.maximum(jnp.sum(mask, axis), 1)


def segment_mean(
    x_N: Array, weight_N: Array, segment_N: Array, num_segments: int
) -> jax.Array:
    """Returns the weighted mean of each segment, 0 for an empty one."""
    total = jax.ops.segment_sum(x_N * weight_N, segment_N, num_segments)
    count = jax.ops.segment_sum(weight_N, segment_N, num_segments)
    return total / jnp.maximum(count, 1)


def bucket(size: int, multiple: int) -> int:
    """Returns the smallest of {1, 1.5} x 2^k x `multiple` that holds `size`.

    Two sizes an octave: padding stays under a third, and a run compiles a handful of shapes.
    """
    unit = multiple
    while unit < size:
        if unit % 2 == 0 and unit * 3 // 2 >= size and (unit // 2) % multiple == 0:
            return unit * 3 // 2
        unit *= 2
    return unit


def pad_rows(x: np.ndarray, num_rows: int, value: float = 0) -> np.ndarray:
    """Returns `x` with rows of `value` appended until it has `num_rows`."""
    if len(x) > num_rows:
        raise ValueError(f"{len(x)} rows do not fit in {num_rows}")
    tail = np.full((num_rows - len(x), *x.shape[1:]), value, x.dtype)
    return np.concatenate([x, tail])


def stack(rows: Sequence[np.ndarray], length: int, value: float = 0) -> np.ndarray:
    """Returns ragged rows as one array, right-padded to `length` along axis 0 of each."""
    return np.stack([pad_rows(np.asarray(row), length, value) for row in rows])
