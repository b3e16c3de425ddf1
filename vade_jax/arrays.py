"""Reductions under masks and by group, casts that round, padding to a few sizes, answers in rows."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.types import Array


def rounded(x: Array, dtype) -> jax.Array:
    """Returns `x` in `dtype`, rounded to it whatever the compiler makes of the result.

    XLA drops a cast to bfloat16 that another cast takes back ("excess precision": elementwise on TPUs
    and GPUs, inside YNNPACK's fusions on CPUs since jaxlib 0.11) and computes with all of the float32.
    A policy with float32 weights and the same weights stored in bfloat16 would be two functions, and
    the KL between them not 0. `reduce_precision` is never dropped.
    """
    x, dtype = jnp.asarray(x), jnp.dtype(dtype)
    if dtype.itemsize < x.dtype.itemsize:
        info = jnp.finfo(dtype)
        x = jax.lax.reduce_precision(x, info.nexp, info.nmant)
    return x.astype(dtype)


def masked_mean(x: Array, mask: Array, axis: int | None = None) -> jax.Array:
    """Returns the mean of `x` where `mask` is 1, and 0 where nothing is selected."""
    return jnp.sum(x * mask, axis) / jnp.maximum(jnp.sum(mask, axis), 1)


def group_range(x_N: Array, group_N: Array, num_groups: int, valid_N: Array) -> tuple[Array, Array]:
    """Returns the lowest and the highest valid value of each group; inf and -inf where there is none.

    NumPy arrays give NumPy arrays, so that a host with groups of ever new sizes compiles nothing.
    """
    if isinstance(x_N, np.ndarray):
        low_M, high_M = np.full(num_groups, np.inf), np.full(num_groups, -np.inf)
        np.minimum.at(low_M, group_N, np.where(valid_N, x_N, np.inf))
        np.maximum.at(high_M, group_N, np.where(valid_N, x_N, -np.inf))
        return low_M, high_M
    low_N = jnp.where(valid_N, x_N, jnp.inf)
    high_N = jnp.where(valid_N, x_N, -jnp.inf)
    low_M = jax.ops.segment_min(low_N, group_N, num_groups)
    high_M = jax.ops.segment_max(high_N, group_N, num_groups)
    return low_M, high_M


def varies(x_N: Array, group_N: Array, num_groups: int, valid_N: Array) -> Array:
    """Returns which groups have two valid values that differ, bool `[M]`.

    Of rewards: the groups that an update learns from. Their share is the effective ratio. A NaN differs
    from everything, so that it reaches the loss, which is checked, and is not taken for a constant.
    """
    low_M, high_M = group_range(x_N, group_N, num_groups, valid_N)
    return ~(low_M >= high_M)


def bucket(size: int, multiple: int) -> int:
    """Returns the smallest `multiple` x {1, 2, 3, 4, 6, 8, 12, 16, ...} that holds `size`.

    Two sizes an octave: padding stays under a half, and a run compiles a handful of shapes.
    """
    unit = multiple
    while unit < size:
        if unit > multiple and unit * 3 // 2 >= size:
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
    """Returns ragged rows as one array, each right-padded to `length`."""
    return np.stack([pad_rows(np.asarray(row), length, value) for row in rows])


def rows(
    num_answers_M: Array, answers_per_row: int, num_rows: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Lays flat answers out in rows of one prompt each.

    Args:
        num_answers_M: answers of each prompt, in any split.
        answers_per_row: G, the capacity of a row; a larger group takes several rows.
        num_rows: pads to this many rows; the added ones repeat prompt 0 and stay empty.

    Returns:
        `group_R`, the prompt of each row, and `slot_N`, the place r * G + g of each flat answer.
    """
    num_answers_M = np.asarray(num_answers_M)
    rows_M = -(-num_answers_M // answers_per_row)
    group_R = np.repeat(np.arange(len(rows_M), dtype=np.int32), rows_M)
    first_M = (np.cumsum(rows_M) - rows_M) * answers_per_row
    slots = [first + np.arange(n) for first, n in zip(first_M, num_answers_M, strict=True)]
    slot_N = np.concatenate(slots).astype(np.int32)
    return pad_rows(group_R, num_rows or len(group_R)), slot_N
