"""Array helpers: masked and grouped reductions, casts that really round, padding, and rows of answers."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.types import Array


def rounded(x: Array, dtype) -> jax.Array:
    """Returns `x` cast to `dtype` and rounded to it, even where the compiler would drop the cast.

    XLA drops a cast to bfloat16 that is followed by a cast back ("excess precision": elementwise on TPUs
    and GPUs, and inside YNNPACK's fusions on CPUs since jaxlib 0.11), and computes with the full float32
    value. A policy with float32 weights and the same weights stored in bfloat16 would then be two
    different functions, with a KL between them that is not 0. XLA never drops `reduce_precision`.
    """
    x, dtype = jnp.asarray(x), jnp.dtype(dtype)
    if dtype.itemsize < x.dtype.itemsize:
        info = jnp.finfo(dtype)
        x = jax.lax.reduce_precision(x, info.nexp, info.nmant)
    return x.astype(dtype)


def top(x: jax.Array) -> jax.Array:
    """Returns the maximum over the last axis, `[..., 1]`, without a gradient.

    On a CPU it takes two steps, of which the first compares whole vectors: of large arrays the one step of
    XLA takes a third of a softmax's time (jaxlib 0.10.2). The barrier keeps it from joining the two.
    """
    whole = lambda x: jnp.max(x, -1, keepdims=True)

    def by_columns(x):
        columns = jnp.max(x.reshape(*x.shape[:-1], -1, 32), -2)
        return whole(jax.lax.optimization_barrier(columns))

    x = jax.lax.stop_gradient(x)
    if x.shape[-1] % 32:
        return whole(x)
    return jax.lax.platform_dependent(x, cpu=by_columns, default=whole)


def masked_mean(x: Array, mask: Array, axis: int | None = None) -> jax.Array:
    """Returns the mean of `x` where `mask` is 1; 0 if the mask is 0 everywhere."""
    return jnp.sum(x * mask, axis) / jnp.maximum(jnp.sum(mask, axis), 1)


def group_range(x_N: Array, group_N: Array, num_groups: int, valid_N: Array) -> tuple[Array, Array]:
    """Returns the lowest and the highest valid value of each group; inf and -inf for a group without any.

    With NumPy arrays the computation stays in NumPy: on the host, group sizes change all the time, and
    JAX would compile a program for each.
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
    """Returns which groups have at least two different valid values, bool `[M]`.

    For rewards, these are the groups that an update learns from; their share is the effective ratio. A
    group with a NaN counts as varied: the NaN then reaches the loss, which is checked, instead of being
    taken for a constant.
    """
    low_M, high_M = group_range(x_N, group_N, num_groups, valid_N)
    return ~(low_M >= high_M)


def bucket(size: int, multiple: int) -> int:
    """Returns the smallest of `multiple` x {1, 2, 3, 4, 6, 8, 12, 16, ...} that is at least `size`.

    There are two sizes per factor of 2, so less than half of the result is padding, and a run compiles
    only a few shapes.
    """
    unit = multiple
    while unit < size:
        if unit > multiple and unit * 3 // 2 >= size:
            return unit * 3 // 2
        unit *= 2
    return unit


def pad_rows(x: np.ndarray, num_rows: int, value: float = 0) -> np.ndarray:
    """Returns `x` padded to `num_rows` rows with rows of `value`."""
    widths = [(0, num_rows - len(x))] + [(0, 0)] * (x.ndim - 1)
    return np.pad(x, widths, constant_values=value)


def padded(x_I: Array, value: float = 1) -> jax.Array:
    """Returns `x_I` with `value` after its end, up to a multiple of 256.

    XLA on CPU vectorises a loop over such a length, and over a 32nd of it, but not over an odd one: a
      draw from a million posteriors took three times as long with one more item.
    """
    return jnp.pad(x_I, (0, -len(x_I) % 256), constant_values=value)


def in_two(function: Callable[..., jax.Array], *x_I: Array) -> jax.Array:
    """Calls an elementwise `function` twice: on a multiple of 256 items, and on the few others.

    XLA computes the first call in vectors. Use it where `padded` does not help because XLA would slice
    the arrays first.
    """
    num_items = len(x_I[0])
    cut = num_items - num_items % 256
    if cut in (0, num_items):
        return function(*x_I)
    return jnp.concatenate([function(*(x[:cut] for x in x_I)), function(*(x[cut:] for x in x_I))])


def stack(rows: Sequence[np.ndarray], length: int, value: float = 0) -> np.ndarray:
    """Returns rows of different lengths as one array, each right-padded with `value` to `length`."""
    return np.stack([pad_rows(np.asarray(row), length, value) for row in rows])


def rows(
    num_answers_M: Array, answers_per_row: int, num_rows: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Arranges flat answers in rows, where each row holds answers to one prompt.

    Args:
        num_answers_M: number of answers to each prompt; they may differ.
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
