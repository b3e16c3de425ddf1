"""One invertible table, Hugging Face tensor <-> parameter, and the way of each to and from the devices.

Import, export and the weight sync of engines all read TABLE. Both naming schemes are accepted
(`model.layers`, `visual` as published; `model.language_model`, `model.visual` as transformers 5 keeps them
in memory); the published one is written.

A checkpoint may be larger than the host's free memory, and a parameter than a device's. So nothing here
holds more than one tensor besides the parameters: a tensor goes to the devices as it lies in the file, split
so that its transform moves nothing between them, is transformed there and written into its layer.
"""

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jax.sharding import NamedSharding, PartitionSpec

from vade_jax import types
from vade_jax.models.qwen import config, lora, model

BLOCK_BYTES = 128_000_000  # of a tensor that leave the devices at a time
_MAX_LISTED = 8  # problems named in one error


class Tensor(Protocol):
    """What is read: an array, or anything that reads a slice when it is asked for."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __getitem__(self, index: Any, /) -> np.ndarray: ...


class Transform(NamedTuple):
    """How a tensor becomes a parameter, with NumPy or JAX arrays alike.

    `invert` undoes `apply`. `axes` takes the mesh axes of the parameter's dimensions to those of the
    tensor's, so that both have the same values on the same device.
    """

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
    lambda axes: axes[2:],  # only D may be split, which comes first in the tensor
)


def _linear(theirs: str, ours: str, *, bias: bool = True) -> dict[str, tuple[str, Transform]]:
    found = {f"{theirs}.weight": (f"{ours}/kernel", LINEAR)}
    return found | ({f"{theirs}.bias": (f"{ours}/bias", SAME)} if bias else {})


# `{}` is the number of the layer: those tensors are stacked along L. Files are written in this order.
_LAYER, _BLOCK = "model.layers.{}.", "visual.blocks.{}."
_OURS_LAYER, _OURS_BLOCK = "text/layers/", "vision/blocks/"
TABLE: dict[str, tuple[str, Transform]] = {
    "model.embed_tokens.weight": ("embedding", SAME),
    "model.norm.weight": ("text/norm/scale", SAME),
    "lm_head.weight": ("lm_head/kernel", LINEAR),
    _LAYER + "input_layernorm.weight": (_OURS_LAYER + "norm1/scale", SAME),
    _LAYER + "post_attention_layernorm.weight": (_OURS_LAYER + "norm2/scale", SAME),
    **_linear(_LAYER + "self_attn.q_proj", _OURS_LAYER + "attention/query"),
    **_linear(_LAYER + "self_attn.k_proj", _OURS_LAYER + "attention/key"),
    **_linear(_LAYER + "self_attn.v_proj", _OURS_LAYER + "attention/value"),
    _LAYER + "self_attn.q_norm.weight": (_OURS_LAYER + "attention/query_norm/scale", SAME),
    _LAYER + "self_attn.k_norm.weight": (_OURS_LAYER + "attention/key_norm/scale", SAME),
    **_linear(_LAYER + "self_attn.o_proj", _OURS_LAYER + "attention/output", bias=False),
    **_linear(_LAYER + "mlp.gate_proj", _OURS_LAYER + "mlp/gate", bias=False),
    **_linear(_LAYER + "mlp.up_proj", _OURS_LAYER + "mlp/up", bias=False),
    **_linear(_LAYER + "mlp.down_proj", _OURS_LAYER + "mlp/down", bias=False),
    "visual.patch_embed.proj.weight": ("vision/patch/kernel", CONV),
    _BLOCK + "norm1.weight": (_OURS_BLOCK + "norm1/scale", SAME),
    _BLOCK + "norm2.weight": (_OURS_BLOCK + "norm2/scale", SAME),
    **_linear(_BLOCK + "attn.qkv", _OURS_BLOCK + "qkv"),
    **_linear(_BLOCK + "attn.proj", _OURS_BLOCK + "proj"),
    **_linear(_BLOCK + "mlp.gate_proj", _OURS_BLOCK + "mlp/gate"),
    **_linear(_BLOCK + "mlp.up_proj", _OURS_BLOCK + "mlp/up"),
    **_linear(_BLOCK + "mlp.down_proj", _OURS_BLOCK + "mlp/down"),
    **_linear("visual.merger.mlp.0", "vision/merger/up"),
    **_linear("visual.merger.mlp.2", "vision/merger/down"),
    "visual.merger.ln_q.weight": ("vision/merger/norm/scale", SAME),
}


class _Entry(NamedTuple):
    """A line of the table for one model: `names` of one tensor, or of each layer's."""

    path: str
    names: list[str]
    stacked: bool
    transform: Transform
    size: tuple[int, ...]  # of the parameter
    tensor_size: tuple[int, ...]


def published(name: str) -> str:
    """Returns the published name of a tensor in either naming scheme."""
    for ours, theirs in (
        ("model.language_model.", "model."),
        ("model.visual.", "visual."),
    ):
        if name.startswith(ours):
            return theirs + name[len(ours) :]
    return name


def names_and_shapes(shape: config.Config) -> list[tuple[str, tuple[int, ...]]]:
    """Returns every tensor of a checkpoint, in the order `from_params` yields them."""
    return [(name, entry.tensor_size) for entry in _entries(shape) for name in entry.names]


# ------------------------------------------------------------------------------ tensors to parameters
def to_params(
    shape: config.Config,
    named: Mapping[str, Tensor],
    dtype: Any = np.float32,
    shardings: types.Params | None = None,
) -> types.Params:
    """Returns Hugging Face tensors as parameters of `dtype`.

    They are NumPy arrays, or, with `shardings` (a NamedSharding for each parameter), `jax.Array`s
    that are made layer by layer; every process of the mesh calls this and reads what its devices
    hold.

    Raises:
        ValueError: tensors are missing, extra, given twice or of another shape; all are named.
    """
    sources = _sources(shape, named)
    dtype, abstract = np.dtype(dtype), model.abstract(shape)
    if shardings is None:
        params = jax.tree.map(lambda leaf: np.empty(leaf.shape, dtype), abstract)
        fill = _fill_on_host
    else:
        zeros = lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, dtype), abstract)
        params = jax.jit(zeros, out_shardings=shardings)()
        fill = _fill_on_devices
    for entry in _entries(shape):
        tensors = [named[sources[name]] for name in entry.names]
        whole = get(params, entry.path)
        *parents, last = entry.path.split("/")
        filled = fill(whole, tensors, entry.stacked, entry.transform)
        get(params, "/".join(parents))[last] = filled
    return params


def _fill_on_host(whole, tensors, stacked, transform) -> np.ndarray:
    layers = whole if stacked else whole[None]
    for layer, tensor in zip(layers, tensors, strict=True):
        layer[...] = transform.apply(tensor[...])
    return whole


def _fill_on_devices(
    whole: jax.Array, tensors: Sequence[Tensor], stacked: bool, transform: Transform
) -> jax.Array:
    """Returns `whole` with its layers' tensors, or with the one tensor that it is.

    Takes the memory of `whole`. A process reads from disk what its own devices hold, no more.
    """
    assert isinstance(whole.sharding, NamedSharding)
    mesh, spec = whole.sharding.mesh, whole.sharding.spec
    axes = (*spec, *[None] * (whole.ndim - len(spec)))
    axes = transform.axes(axes[1:] if stacked else axes)
    split = NamedSharding(mesh, PartitionSpec(*axes))
    write = _writer(transform, stacked, whole.sharding)
    for i, tensor in enumerate(tensors):
        read = tensor.__getitem__
        part = jax.make_array_from_callback(tuple(tensor.shape), split, read)
        # Waited for: dispatched ahead of their execution, all tensors would be in memory at once.
        whole = jax.block_until_ready(write(whole, part, i))
    return whole


@functools.cache
def _writer(transform, stacked, sharding):
    """Returns what sets one layer of a parameter (or all of it) to a tensor."""

    def write(whole, part, i):
        x = transform.apply(part).astype(whole.dtype)
        x, i = (x[None], i) if stacked else (x, 0)
        # XLA does this update in place. `whole.at[i].set(x)` also masks, which copies all layers.
        return jax.lax.dynamic_update_slice_in_dim(whole, x, i, axis=0)

    return jax.jit(write, out_shardings=sharding, donate_argnums=0)


# ------------------------------------------------------------------------------ parameters to tensors
def from_params(
    shape: config.Config, params: types.Params, dtype: Any = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (published name, tensor) as NumPy arrays: one tensor is on the host at a time.

    `dtype` (default: each parameter's own) is taken on before a tensor leaves its devices. A kernel
    with an adapter next to it (`lora.join`) is yielded as their sum. All processes that hold a part of
    the parameters must iterate together; each gets everything.

    Raises:
        ValueError: a parameter is missing or has another shape; before the first is yielded.
    """
    sizes = dict(names_and_shapes(shape))
    stream = from_params_in_blocks(shape, params, dtype)
    for name, group in itertools.groupby(stream, operator.itemgetter(0)):
        _, first = next(group)
        if first.shape == sizes[name]:
            yield name, first
            continue
        # Filled block by block: concatenating would hold the tensor twice.
        whole, done = np.empty(sizes[name], first.dtype), 0
        for _, block in itertools.chain([(name, first)], group):
            whole[done : done + len(block)] = block
            done += len(block)
        yield name, whole


def from_params_in_blocks(
    shape: config.Config, params: types.Params, dtype: Any = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields what `from_params` does in consecutive rows, 128 MB at a time."""
    check_params(shape, params)
    for entry in _entries(shape):
        value = _Value(get(params, entry.path), *_adapter_of(params, entry.path))
        kind = np.dtype(value.kernel.dtype if dtype is None else dtype)
        for i, name in enumerate(entry.names):
            layer = i if entry.stacked else None
            for block in _blocks(value, layer, entry.transform, entry.tensor_size, kind):
                yield name, block


class _Value(NamedTuple):
    """A parameter, and the adapter that is added to it."""

    kernel: Any
    lora_a: Any = None
    lora_b: Any = None

    def of(self, layer: Any) -> "_Value":
        return jax.tree.map(lambda x: x[layer], self)

    def sum(self) -> Any:
        """Returns W + A B, where there are A and B."""
        if self.lora_a is None:
            return self.kernel
        with jax.default_matmul_precision("highest"):
            return self.kernel.astype(np.float32) + self.lora_a @ self.lora_b


def _adapter_of(params: types.Params, path: str) -> tuple:
    beside = get(params, path.rpartition("/")[0])
    if not path.endswith("/kernel") or lora.NAME not in beside:
        return ()
    return beside[lora.NAME][lora.A], beside[lora.NAME][lora.B]


def _blocks(value: _Value, layer, transform, size, dtype) -> Iterator[np.ndarray]:
    """Yields the tensor of shape `size` that a layer of `value` makes, some rows at a time."""
    step = max(1, BLOCK_BYTES // max(1, dtype.itemsize * int(np.prod(size[1:]))))
    for first in range(0, size[0], step):
        count = min(step, size[0] - first)
        if isinstance(kernel := value.kernel, jax.Array):
            # What other processes hold has to come here: all of them then get every row.
            everywhere = None
            if not kernel.is_fully_addressable:
                assert isinstance(kernel.sharding, NamedSharding)
                everywhere = kernel.sharding.mesh
            take = _reader(transform, count, dtype, layer is not None, everywhere)
            yield np.asarray(take(value, layer or 0, first))
        else:
            tensor = transform.invert((value if layer is None else value.of(layer)).sum())
            block = tensor[first : first + count]
            yield np.ascontiguousarray(block.astype(dtype, copy=False))


@functools.cache
def _reader(transform, count, dtype, stacked, mesh):
    """Returns what takes `count` rows of a tensor; onto every device of `mesh`, if given."""

    def take(value, layer, first):
        # Slices with a traced start: the program is the same for every layer and block.
        if stacked:
            value = value.of(layer)
        tensor = transform.invert(value.sum())
        return jax.lax.dynamic_slice_in_dim(tensor, first, count).astype(dtype)

    return jax.jit(take, out_shardings=mesh and NamedSharding(mesh, PartitionSpec()))


def check_params(shape: config.Config, params: types.Params) -> None:
    """Raises ValueError where `params` (arrays or shapes) are not those of this model."""
    for path, size in ((entry.path, entry.size) for entry in _entries(shape)):
        try:
            found = np.shape(get(params, path))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is missing, expected {size}") from error
        if found != size:
            raise ValueError(f"{path} has shape {found}, expected {size}")


# ------------------------------------------------------------------------------ the table for one model
def _entries(shape: config.Config) -> Iterator[_Entry]:
    # A model has some of the lines: one without a vision tower, without biases, with tied embeddings.
    own: dict[str, Any] = traverse_util.flatten_dict(model.abstract(shape), sep="/")
    assert {path for path, _ in TABLE.values()} >= own.keys(), "a parameter is in no line"
    for pattern, (path, transform) in TABLE.items():
        if path not in own:
            continue
        size, stacked = own[path].shape, "{}" in pattern
        names = [pattern.format(i) for i in range(size[0])] if stacked else [pattern]
        # The transform of a stand-in that takes one byte says what shape the tensor has.
        stand_in = np.broadcast_to(np.int8(0), size[1:] if stacked else size)
        tensor_size = transform.invert(stand_in).shape
        yield _Entry(path, names, stacked, transform, size, tensor_size)


def _sources(shape: config.Config, named: Mapping[str, Tensor]) -> dict[str, str]:
    """Returns {published name: name in `named`}, or raises with everything that is wrong."""
    expected = dict(names_and_shapes(shape))
    sources: dict[str, str] = {}
    problems = []
    for name in named:
        target = published(name)
        if target in sources:
            problems.append(f"{name} is given twice, also as {sources[target]}")
        sources[target] = name
    if shape.tie_embeddings and "lm_head.weight" in sources:
        # Some tied checkpoints carry a copy of the embedding as their head: dropped, if it is one.
        head, embedding = sources.pop("lm_head.weight"), "model.embed_tokens.weight"
        if embedding in sources and not _equal(named[head], named[sources[embedding]]):
            problems.append(
                f"{head} differs from {sources[embedding]}, but tie_word_embeddings is true"
            )
    problems += [f"{name} is missing" for name in expected if name not in sources]
    for target, name in sources.items():
        if target not in expected:
            problems.append(f"{name} is not part of this model")
        elif (found := tuple(named[name].shape)) != expected[target]:
            problems.append(f"{name} has shape {found}, expected {expected[target]}")
    if problems:
        more = len(problems) - _MAX_LISTED
        listed = problems[:_MAX_LISTED] + ([f"and {more} more"] if more > 0 else [])
        raise ValueError("the tensors do not fit the config: " + "; ".join(listed))
    return sources


def _equal(x: Tensor, y: Tensor) -> bool:
    """Compares a few thousand rows at a time: the embedding of the 7B is 1 GB."""
    if tuple(x.shape) != tuple(y.shape):
        return False
    slices = (slice(i, i + 4096) for i in range(0, x.shape[0], 4096))
    return all(np.array_equal(x[part], y[part]) for part in slices)


def get(tree: Mapping[str, Any], path: str) -> Any:
    """Returns what is at a path such as `text/norm/scale`; raises KeyError."""
    return functools.reduce(operator.getitem, filter(None, path.split("/")), tree)
