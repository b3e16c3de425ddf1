"""One parameter between its Hugging Face tensors and the devices, a layer at a time.

A tensor goes to the devices as it lies in the file, split so that its transform moves nothing
between them, and is transformed there. Layers are set and cut out by `lax`'s dynamic slices, which
XLA does in place; indexing (`x.at[i].set`) also masks, which copies all layers.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from vade_jax import types

BLOCK_BYTES = 128_000_000


class Tensor(Protocol):
    """What is read: an array, or anything that reads a slice when it is asked for."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def __getitem__(self, index: tuple[slice, ...]) -> np.ndarray: ...


class Transform(NamedTuple):
    """How one tensor changes; `invert` undoes `apply`, `axes` does so with mesh axes."""

    apply: Callable[[Any], Any]
    invert: Callable[[Any], Any]
    axes: Callable[[tuple], tuple]


SAME = Transform(lambda x: x, lambda x: x, lambda axes: axes)
LINEAR = Transform(  # torch keeps (out, in)
    lambda x: x.T, lambda x: x.T, lambda axes: axes[::-1]
)
CONV = Transform(  # (D, channel, frame, y, x) <-> (frame, E, D)
    lambda x: x.transpose(2, 1, 3, 4, 0).reshape(2, 588, -1),
    lambda x: x.reshape(2, 3, 14, 14, -1).transpose(4, 1, 0, 2, 3),
    lambda axes: axes[2:],
)


def zeros(abstract: types.Params, dtype: np.dtype, shardings: types.Params):
    """Returns room of `dtype` for parameters of these shapes."""

    def make():
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, dtype), abstract)

    return jax.jit(make, out_shardings=shardings)()


def fill(
    whole: jax.Array, tensors: Sequence[Tensor], stacked: bool, transform: Transform
) -> jax.Array:
    """Returns `whole` with its layers' tensors, or with the one tensor that it is.

    Takes the memory of `whole`; beside it one tensor is in memory. A process reads what its own
    devices hold.
    """
    split = _split(whole, transform, stacked)
    write = _writer(transform, stacked, whole.sharding)
    for i, tensor in enumerate(tensors):
        read = tensor.__getitem__
        part = jax.make_array_from_callback(tuple(tensor.shape), split, read)
        whole = jax.block_until_ready(write(whole, part, i))
    return whole


def blocks(
    value: Any,
    layer: int | None,
    transform: Transform,
    size: tuple[int, ...],
    dtype: np.dtype,
) -> Iterator[np.ndarray]:
    """Yields the tensor of shape `size` that a layer of `value` makes, some rows at a time.

    Of an array on several processes all of them must take part.
    """
    step = max(1, BLOCK_BYTES // max(1, dtype.itemsize * int(np.prod(size[1:]))))
    for first in range(0, size[0], step):
        count = min(step, size[0] - first)
        if isinstance(value, jax.Array):
            whole = None if value.is_fully_addressable else value.sharding.mesh
            take = _take(transform, count, dtype, layer is not None, whole)
            yield np.asarray(take(value, layer or 0, first))
        else:
            tensor = transform.invert(value if layer is None else value[layer])
            rows = tensor[first : first + count]
            yield np.ascontiguousarray(rows.astype(dtype, copy=False))


def tensor_shape(transform: Transform, layer_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape of the tensor that a parameter (one layer of it) makes."""
    return transform.invert(np.broadcast_to(np.int8(0), layer_shape)).shape


@functools.cache
def _writer(transform, stacked, sharding):
    """Returns what sets one layer of a parameter (or all of it) to a tensor."""

    def write(whole, part, i):
        x = transform.apply(part).astype(whole.dtype)
        x, i = (x[None], i) if stacked else (x, 0)
        return jax.lax.dynamic_update_slice_in_dim(whole, x, i, axis=0)

    return jax.jit(write, out_shardings=sharding, donate_argnums=0)


@functools.cache
def _take(transform, count, dtype, stacked, mesh):
    """Returns what cuts `count` rows of a tensor out; onto every device of `mesh`, if given."""

    def take(value, layer, first):
        cut = jax.lax.dynamic_index_in_dim
        tensor = transform.invert(cut(value, layer, 0, False) if stacked else value)
        return jax.lax.dynamic_slice_in_dim(tensor, first, count).astype(dtype)

    return jax.jit(take, out_shardings=mesh and NamedSharding(mesh, PartitionSpec()))


def _split(whole: jax.Array, transform: Transform, stacked: bool) -> NamedSharding:
    """Returns how a tensor is split so that its transform finds each part in place."""
    mesh, spec = whole.sharding.mesh, whole.sharding.spec
    axes = (*spec, *[None] * (whole.ndim - len(spec)))
    axes = transform.axes(axes[1:] if stacked else axes)
    return NamedSharding(mesh, PartitionSpec(*axes))
