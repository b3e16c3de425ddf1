"""An invertible table (Hugging Face tensor <-> parameter), and how each tensor moves to and from the devices.

Import, export and the weight sync of engines all use TABLE. Two naming schemes can be read: that of the table
(`model.layers`, `visual`), in which text models and Qwen2.5-VL are published, and that of transformers 5 in
memory (`model.language_model`, `model.visual`), in which Qwen3-VL is published. Each family is written as
published.

A checkpoint may be larger than the free memory of the host, and a parameter larger than that of a device.
So no function here holds more than the parameters and one tensor (on a single CPU, one parameter). A tensor
goes to the devices in the form of the file, split such that its transform moves nothing between devices.
There it is transformed and written into its layer of the parameter.
"""

import functools
import logging
import math
import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from flax import traverse_util
from jax.sharding import NamedSharding, PartitionSpec

from vade_jax import types
from vade_jax.models.qwen import config, lora, model

_MAX_LISTED = 8  # most problems that an error names
_SKIPPED = "mtp."  # Qwen3.5's head for several tokens at once, which transformers skips too


class Tensor(Protocol):
    """A tensor to read: an array, or any object that reads a slice when it is indexed."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __getitem__(self, index: Any, /) -> np.ndarray: ...


class Transform(NamedTuple):
    """How a tensor becomes a parameter; works for NumPy and JAX arrays.

    Attributes:
        apply: tensor -> parameter (of one layer).
        invert: parameter -> tensor.
        axes: mesh axes of the parameter's dimensions -> those of the tensor's dimensions, such that each
            device holds the same values of both.
    """

    apply: Callable[[Any], Any]
    invert: Callable[[Any], Any]
    axes: Callable[[tuple], tuple]


SAME = Transform(lambda x: x, lambda x: x, lambda axes: axes)
LINEAR = Transform(  # torch stores (out, in)
    lambda x: x.T, lambda x: x.T, lambda axes: axes[::-1]
)
CONV = Transform(  # (D, channel, frame, y, x) <-> (frame, E, D)
    lambda x: x.transpose(2, 1, 3, 4, 0).reshape(2, -1, x.shape[0]),
    lambda x: x.reshape(2, 3, side := math.isqrt(x.shape[1] // 3), side, -1).transpose(
        4, 1, 0, 2, 3
    ),
    lambda axes: axes[2:],  # only D may be split; it is the tensor's first dimension
)
TAPS = Transform(  # (C, 1, tap) <-> (tap, C)
    lambda x: x[:, 0].T, lambda x: x.T[:, None], lambda axes: (axes[1], None, axes[0])
)


# Path of the parameter -> name of the tensor, and how one becomes the other.
Lines = dict[str, tuple[str, "Transform"]]


def _linear(ours: str, theirs: str, *, bias: bool = True) -> Lines:
    lines: Lines = {f"{ours}/kernel": (f"{theirs}.weight", LINEAR)}
    return lines | ({f"{ours}/bias": (f"{theirs}.bias", SAME)} if bias else {})


def _norm(ours: str, theirs: str) -> Lines:
    return {f"{ours}/scale": (f"{theirs}.weight", SAME), f"{ours}/bias": (f"{theirs}.bias", SAME)}


def _norms(ours: str) -> Lines:
    return {
        f"{ours}/norm1/scale": (_LAYER + "input_layernorm.weight", SAME),
        f"{ours}/norm2/scale": (_LAYER + "post_attention_layernorm.weight", SAME),
    }


def _mlp(ours: str) -> Lines:
    return {
        **_linear(f"{ours}/mlp/gate", _LAYER + "mlp.gate_proj", bias=False),
        **_linear(f"{ours}/mlp/up", _LAYER + "mlp.up_proj", bias=False),
        **_linear(f"{ours}/mlp/down", _LAYER + "mlp.down_proj", bias=False),
    }


# `{}` is the number of a layer; the tensors of all layers are stacked along L. Files are written in
# the order of the table.
_LAYER, _BLOCK, _DEEP = "model.layers.{}.", "visual.blocks.{}.", "visual.deepstack_merger_list.{}."
_ATTENTION, _DELTA, _OURS_BLOCK = "text/layers/attention/", "text/linear/delta/", "vision/blocks/"
TABLE: Lines = {
    "embedding": ("model.embed_tokens.weight", SAME),
    "text/norm/scale": ("model.norm.weight", SAME),
    "lm_head/kernel": ("lm_head.weight", LINEAR),
    **_norms("text/layers"),
    **_linear(_ATTENTION + "query", _LAYER + "self_attn.q_proj"),
    **_linear(_ATTENTION + "key", _LAYER + "self_attn.k_proj"),
    **_linear(_ATTENTION + "value", _LAYER + "self_attn.v_proj"),
    _ATTENTION + "query_norm/scale": (_LAYER + "self_attn.q_norm.weight", SAME),
    _ATTENTION + "key_norm/scale": (_LAYER + "self_attn.k_norm.weight", SAME),
    **_linear(_ATTENTION + "output", _LAYER + "self_attn.o_proj", bias=False),
    **_mlp("text/layers"),
    **_norms("text/linear"),
    **_linear(_DELTA + "qkv", _LAYER + "linear_attn.in_proj_qkv", bias=False),
    **_linear(_DELTA + "gate", _LAYER + "linear_attn.in_proj_z", bias=False),
    **_linear(_DELTA + "beta", _LAYER + "linear_attn.in_proj_b", bias=False),
    **_linear(_DELTA + "decay", _LAYER + "linear_attn.in_proj_a", bias=False),
    _DELTA + "conv": (_LAYER + "linear_attn.conv1d.weight", TAPS),
    _DELTA + "log_rate": (_LAYER + "linear_attn.A_log", SAME),
    _DELTA + "rate_bias": (_LAYER + "linear_attn.dt_bias", SAME),
    _DELTA + "norm": (_LAYER + "linear_attn.norm.weight", SAME),
    **_linear(_DELTA + "output", _LAYER + "linear_attn.out_proj", bias=False),
    **_mlp("text/linear"),
    "vision/patch/kernel": ("visual.patch_embed.proj.weight", CONV),
    "vision/patch/bias": ("visual.patch_embed.proj.bias", SAME),
    "vision/positions/table": ("visual.pos_embed.weight", SAME),
    **_norm(_OURS_BLOCK + "norm1", _BLOCK + "norm1"),
    **_norm(_OURS_BLOCK + "norm2", _BLOCK + "norm2"),
    **_linear(_OURS_BLOCK + "qkv", _BLOCK + "attn.qkv"),
    **_linear(_OURS_BLOCK + "proj", _BLOCK + "attn.proj"),
    **_linear(_OURS_BLOCK + "mlp/gate", _BLOCK + "mlp.gate_proj"),
    **_linear(_OURS_BLOCK + "mlp/up", _BLOCK + "mlp.up_proj"),
    **_linear(_OURS_BLOCK + "mlp/down", _BLOCK + "mlp.down_proj"),
    **_linear(_OURS_BLOCK + "mlp/fc1", _BLOCK + "mlp.linear_fc1"),
    **_linear(_OURS_BLOCK + "mlp/fc2", _BLOCK + "mlp.linear_fc2"),
    # The merger of Qwen2.5-VL, then those of Qwen3-VL.
    **_linear("vision/merger/up", "visual.merger.mlp.0"),
    **_linear("vision/merger/down", "visual.merger.mlp.2"),
    "vision/merger/norm/scale": ("visual.merger.ln_q.weight", SAME),
    **_norm("vision/merger/layer_norm", "visual.merger.norm"),
    **_linear("vision/merger/mlp/fc1", "visual.merger.linear_fc1"),
    **_linear("vision/merger/mlp/fc2", "visual.merger.linear_fc2"),
    **_norm("vision/deepstack/layer_norm", _DEEP + "norm"),
    **_linear("vision/deepstack/mlp/fc1", _DEEP + "linear_fc1"),
    **_linear("vision/deepstack/mlp/fc2", _DEEP + "linear_fc2"),
}


class _Entry(NamedTuple):
    """A line of the table, for one model."""

    path: str
    names: list[str]  # of the tensors: one name or, if the parameter is stacked, one per layer
    stacked: bool
    transform: Transform
    size: tuple[int, ...]  # shape of the parameter
    tensor_size: tuple[int, ...]  # shape of one tensor


def in_table(name: str) -> str:
    """Returns the table's name of a tensor that is named in either scheme."""
    return re.sub(r"^model\.(?:language_(model\.)|(visual\.))", r"\1\2", name)


def in_memory(shape: config.Config, name: str) -> str:
    """Returns the name that a tensor or module of the table has in memory in transformers 5."""
    return name if shape.vision is None else nested(name)


def nested(name: str) -> str:
    """Returns the table's name as vision-language models have it in transformers 5, under their parts."""
    if name.startswith("visual."):
        return f"model.{name}"
    return name.replace("model.", "model.language_model.", 1)


def published(shape: config.Config, name: str) -> str:
    """Returns the name that a tensor of the table has in published files of its family."""
    return name if shape.family == "qwen2_5_vl" else in_memory(shape, name)


def names_and_shapes(shape: config.Config) -> list[tuple[str, tuple[int, ...]]]:
    """Returns the name and shape of every tensor of a checkpoint, in the order of `from_params`."""
    return [(name, entry.tensor_size) for entry in _entries(shape) for name in entry.names]


def numbers(shape: config.Config, path: str, count: int) -> Sequence[int]:
    """Returns the numbers of the `count` layers that are stacked in a parameter."""
    if not path.startswith("text/"):
        return range(count)
    is_linear, interval = path.startswith("text/linear/"), shape.text.interval
    return [i for i in range(shape.text.num_layers) if ((i + 1) % interval > 0) == is_linear]


# ------------------------------------------------------------------------------ tensors to parameters
def to_params(
    shape: config.Config,
    named: Mapping[str, Tensor],
    dtype: Any = np.float32,
    shardings: types.Params | None = None,
) -> types.Params:
    """Returns Hugging Face tensors as parameters of `dtype`.

    Without `shardings` the parameters are NumPy arrays. With `shardings` (a NamedSharding for each
    parameter) they are `jax.Array`s, filled layer by layer. Then every process of the mesh must call this,
    and each reads only what its devices hold.

    Raises:
        ValueError: tensors are missing, extra, doubled or of another shape; the message names them.
    """
    sources = _sources(shape, named)
    dtype, abstract = np.dtype(dtype), model.abstract(shape)
    # A CPU's memory is the host's: without programs, of which each layout would need its own.
    on_host = shardings is None or _is_one_cpu(jax.tree.leaves(shardings)[0].device_set)
    if on_host:
        params = jax.tree.map(lambda leaf: np.empty(leaf.shape, dtype), abstract)
        fill = _fill_on_host
    else:
        zeros = lambda: jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, dtype), abstract)
        params = jax.jit(zeros, out_shardings=shardings)()
        fill = _fill_on_devices
    for entry in _entries(shape):
        tensors = [named[sources[name]] for name in entry.names]
        target = get(params, entry.path)
        *parents, last = entry.path.split("/")
        filled = fill(target, tensors, entry.stacked, entry.transform)
        if on_host and shardings is not None:
            filled = jax.device_put(filled, get(shardings, entry.path), may_alias=False)
        get(params, "/".join(parents))[last] = filled
    return params


def _is_one_cpu(devices: Collection[Any]) -> bool:
    return [device.platform for device in devices] == ["cpu"]


def _fill_on_host(target, tensors, stacked, transform) -> np.ndarray:
    layers = target if stacked else target[None]
    for layer, tensor in zip(layers, tensors, strict=True):
        layer[...] = transform.apply(tensor[...])
    return target


def _fill_on_devices(
    target: jax.Array, tensors: Sequence[Tensor], stacked: bool, transform: Transform
) -> jax.Array:
    """Returns `target` filled with the tensors of its layers or, if it is not stacked, with its one tensor.

    `target` is donated: its memory is used for the result. A process reads from disk only what its own
    devices hold.
    """
    assert isinstance(target.sharding, NamedSharding)
    mesh, spec = target.sharding.mesh, target.sharding.spec
    axes = (*spec, *[None] * (target.ndim - len(spec)))
    # A tensor has one layer, so axis L, which is never split, is left out.
    axes = transform.axes(axes[1:] if stacked else axes)
    split = NamedSharding(mesh, PartitionSpec(*axes))
    write = _writer(transform, stacked, target.sharding)
    for i, tensor in enumerate(tensors):
        read = tensor.__getitem__
        part = jax.make_array_from_callback(tuple(tensor.shape), split, read)
        # JAX dispatches ahead of execution: without waiting, all tensors would be in memory at once.
        target = jax.block_until_ready(write(target, part, i))
    return target


@functools.cache
def _writer(transform, stacked, sharding):
    """Returns a jitted function that sets one layer of a parameter, or all of it, to a tensor."""

    def write(target, part, i):
        x = transform.apply(part).astype(target.dtype)
        x, i = (x[None], i) if stacked else (x, 0)
        # XLA does this update in place. `target.at[i].set(x)` would also mask, which copies all layers.
        return jax.lax.dynamic_update_slice_in_dim(target, x, i, axis=0)

    return jax.jit(write, out_shardings=sharding, donate_argnums=0)


# ------------------------------------------------------------------------------ parameters to tensors
def from_params(
    shape: config.Config, params: types.Params, dtype: Any = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (published name, tensor) as NumPy arrays, with one tensor on the host at a time.

    A tensor is cast to `dtype` (default: that of the parameter) before it leaves its devices. A kernel
    with an adapter (`lora.join`) is yielded as the sum of both. All processes that hold a part of the
    parameters must iterate together; each gets every tensor.

    Raises:
        ValueError: a parameter is missing or has another shape; raised before the first tensor.
    """
    check_params(shape, params)
    for entry in _entries(shape):
        value = _Value(get(params, entry.path), *_adapter_of(params, entry.path))
        kind = np.dtype(value.kernel.dtype if dtype is None else dtype)
        for i, name in enumerate(entry.names):
            yield name, _tensor(value, i if entry.stacked else None, entry.transform, kind)


class _Value(NamedTuple):
    """A parameter and, for a kernel with an adapter, the A and B that are added to it."""

    kernel: Any
    lora_a: Any = None
    lora_b: Any = None

    def of(self, layer: Any) -> "_Value":
        return jax.tree.map(lambda x: x[layer], self)

    def sum(self) -> Any:
        """Returns W + A B if there is an adapter, else W."""
        if self.lora_a is None:
            return self.kernel
        with jax.default_matmul_precision("highest"):
            return self.kernel.astype(np.float32) + self.lora_a @ self.lora_b


def _adapter_of(params: types.Params, path: str) -> tuple:
    parent = get(params, path.rpartition("/")[0])
    if not path.endswith("/kernel") or lora.NAME not in parent:
        return ()
    return parent[lora.NAME][lora.A], parent[lora.NAME][lora.B]


def _tensor(value: _Value, layer: int | None, transform: Transform, dtype: np.dtype) -> np.ndarray:
    """Returns the tensor of one layer of `value`; `layer` None: of all of it."""
    kernel = value.kernel
    is_alone = value.lora_a is None and isinstance(kernel, jax.Array)
    if is_alone and _is_one_cpu(kernel.devices()):
        # Its memory is the host's: no program is compiled for each shape.
        value = _Value(kernel := np.asarray(kernel))
    if not isinstance(kernel, jax.Array):
        tensor = transform.invert((value if layer is None else value.of(layer)).sum())
        return np.ascontiguousarray(tensor.astype(dtype, copy=False))
    # If other processes hold a part, the tensor is replicated: every process gets all of it.
    everywhere = None
    if not kernel.is_fully_addressable:
        assert isinstance(kernel.sharding, NamedSharding)
        everywhere = kernel.sharding.mesh
    take = _reader(transform, dtype, layer is not None, everywhere)
    return np.asarray(take(value, layer or 0))


@functools.cache
def _reader(transform, dtype, stacked, mesh):
    """Returns a jitted function that takes a tensor; with a `mesh`, it is replicated on all its devices."""

    def take(value, layer):
        # The layer is traced, so all layers share one program.
        return transform.invert((value.of(layer) if stacked else value).sum()).astype(dtype)

    return jax.jit(take, out_shardings=mesh and NamedSharding(mesh, PartitionSpec()))


def check_params(shape: config.Config, params: types.Params) -> None:
    """Raises ValueError if `params` (arrays or shapes) do not fit this model."""
    for path, size in ((entry.path, entry.size) for entry in _entries(shape)):
        try:
            actual = np.shape(get(params, path))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is missing, expected {size}") from error
        if actual != size:
            raise ValueError(f"{path} has shape {actual}, expected {size}")


# ------------------------------------------------------------------------------ the table for one model
def _entries(shape: config.Config) -> Iterator[_Entry]:
    # A model may lack some lines: it may have no vision tower, no biases, or tied embeddings.
    own: dict[str, Any] = traverse_util.flatten_dict(model.abstract(shape), sep="/")
    assert TABLE.keys() >= own.keys(), "a parameter is in no line"
    for path, (pattern, transform) in TABLE.items():
        if path not in own:
            continue
        size, stacked = own[path].shape, "{}" in pattern
        pattern = published(shape, pattern)
        names = [pattern.format(i) for i in numbers(shape, path, size[0])] if stacked else [pattern]
        # The shape of the tensor is found by inverting a stand-in, which is broadcast from one byte.
        stand_in = np.broadcast_to(np.int8(0), size[1:] if stacked else size)
        tensor_size = transform.invert(stand_in).shape
        yield _Entry(path, names, stacked, transform, size, tensor_size)


def _sources(shape: config.Config, named: Mapping[str, Tensor]) -> dict[str, str]:
    """Returns {published name: name in `named`}; raises one ValueError for all problems."""
    expected = dict(names_and_shapes(shape))
    sources: dict[str, str] = {}
    problems = []
    if skipped := [name for name in named if name.startswith(_SKIPPED)]:
        logging.info("%d tensors of another head (%s) are not read", len(skipped), skipped[0])
    for name in (name for name in named if name not in skipped):
        target = published(shape, in_table(name))
        if target in sources:
            problems.append(f"{name} occurs twice, also as {sources[target]}")
        sources[target] = name
    if shape.tie_embeddings and "lm_head.weight" in sources:
        # Some tied checkpoints have a copy of the embedding as their head. It is ignored if it is equal.
        head = sources.pop("lm_head.weight")
        embedding = published(shape, "model.embed_tokens.weight")
        if embedding in sources and not np.array_equal(
            named[head][...], named[sources[embedding]][...]
        ):
            problems.append(
                f"{head} differs from {sources[embedding]}, but tie_word_embeddings is true"
            )
    problems += [f"{name} is missing" for name in expected if name not in sources]
    for target, name in sources.items():
        if target not in expected:
            problems.append(f"{name} is not part of this model")
        elif (actual := tuple(named[name].shape)) != expected[target]:
            problems.append(f"{name} has shape {actual}, expected {expected[target]}")
    if problems:
        more = len(problems) - _MAX_LISTED
        listed = problems[:_MAX_LISTED] + ([f"and {more} more"] if more > 0 else [])
        raise ValueError("the tensors do not fit the config: " + "; ".join(listed))
    return sources


def get(tree: Mapping[str, Any], path: str) -> Any:
    """Returns what a tree has at a path such as `text/norm/scale`; raises KeyError if there is nothing."""
    return functools.reduce(operator.getitem, filter(None, path.split("/")), tree)
