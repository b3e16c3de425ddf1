"""One invertible table: Hugging Face tensor <-> parameter path and transform.

Import, export and the weight sync of engines all read it. Both naming schemes are accepted
(`model.layers`, `visual` as published; `model.language_model`, `model.visual` as transformers 5
keeps them in memory); the published one is written.
"""

import itertools
import operator
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from vade_jax import types
from vade_jax.models.qwen25vl import config, model, transfer
from vade_jax.models.qwen25vl.transfer import CONV, LINEAR, SAME, Tensor, Transform

_MAX_LISTED = 8  # problems named in one error

# `{}` is the number of the layer: those tensors are stacked along L.
_LAYER, _BLOCK = "model.layers.{}.", "visual.blocks.{}."
_OURS_LAYER, _OURS_BLOCK = "text/layers/", "vision/blocks/"
TABLE: dict[str, tuple[str, Transform]] = {
    "model.embed_tokens.weight": ("embedding", SAME),
    "model.norm.weight": ("text/norm/scale", SAME),
    "lm_head.weight": ("lm_head/kernel", LINEAR),
    _LAYER + "input_layernorm.weight": (_OURS_LAYER + "norm1/scale", SAME),
    _LAYER + "post_attention_layernorm.weight": (_OURS_LAYER + "norm2/scale", SAME),
    **{
        f"{_LAYER}self_attn.{hf}_proj.{kind}": (
            f"{_OURS_LAYER}attention/{ours}",
            transform,
        )
        for hf, name in {"q": "query", "k": "key", "v": "value", "o": "output"}.items()
        for kind, ours, transform in (
            ("weight", f"{name}/kernel", LINEAR),
            ("bias", f"{name}/bias", SAME),
        )
        if (hf, kind) != ("o", "bias")
    },
    **{
        f"{_LAYER}mlp.{name}_proj.weight": (f"{_OURS_LAYER}mlp/{name}/kernel", LINEAR)
        for name in ("gate", "up", "down")
    },
    "visual.patch_embed.proj.weight": ("vision/patch/kernel", CONV),
    _BLOCK + "norm1.weight": (_OURS_BLOCK + "norm1/scale", SAME),
    _BLOCK + "norm2.weight": (_OURS_BLOCK + "norm2/scale", SAME),
    **{
        f"{prefix}.{kind}": (f"{ours}/{name}", transform)
        for prefix, ours in {
            _BLOCK + "attn.qkv": _OURS_BLOCK + "qkv",
            _BLOCK + "attn.proj": _OURS_BLOCK + "proj",
            _BLOCK + "mlp.gate_proj": _OURS_BLOCK + "mlp/gate",
            _BLOCK + "mlp.up_proj": _OURS_BLOCK + "mlp/up",
            _BLOCK + "mlp.down_proj": _OURS_BLOCK + "mlp/down",
            "visual.merger.mlp.0": "vision/merger/up",
            "visual.merger.mlp.2": "vision/merger/down",
        }.items()
        for kind, name, transform in (
            ("weight", "kernel", LINEAR),
            ("bias", "bias", SAME),
        )
    },
    "visual.merger.ln_q.weight": ("vision/merger/norm/scale", SAME),
}


class _Row(NamedTuple):
    """A line of the table for a model: `names` of one tensor, or of each layer's."""

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
    return [(name, row.tensor_size) for row in _rows(shape) for name in row.names]


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
    else:
        params = transfer.zeros(abstract, dtype, shardings)
    fill = _fill_on_host if shardings is None else transfer.fill
    for row in _rows(shape):
        tensors = [named[sources[name]] for name in row.names]
        whole = _get(params, row.path)
        _put(params, row.path, fill(whole, tensors, row.stacked, row.transform))
    return params


def from_params(
    shape: config.Config, params: types.Params, dtype: Any = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (published name, tensor) as NumPy arrays: one tensor is on the host at a time.

    `dtype` (default: each parameter's own) is taken on before a tensor leaves its devices. All
    processes that hold a part of the parameters must iterate together; each gets everything.

    Raises:
      ValueError: a parameter is missing or has another shape; before the first is yielded.
    """
    sizes = dict(names_and_shapes(shape))
    stream = from_params_in_blocks(shape, params, dtype)
    for name, group in itertools.groupby(stream, operator.itemgetter(0)):
        yield name, _join(sizes[name], (block for _, block in group))


def from_params_in_blocks(
    shape: config.Config, params: types.Params, dtype: Any = None
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields what `from_params` does in consecutive rows, 128 MB at a time."""
    check_params(shape, params)
    for row in _rows(shape):
        value = _get(params, row.path)
        kind = np.dtype(value.dtype if dtype is None else dtype)
        for i, name in enumerate(row.names):
            layer = i if row.stacked else None
            for block in transfer.blocks(
                value, layer, row.transform, row.tensor_size, kind
            ):
                yield name, block


def check_params(shape: config.Config, params: types.Params) -> None:
    """Raises ValueError where `params` (arrays or shapes) are not those of this model."""
    for path, size in ((row.path, row.size) for row in _rows(shape)):
        try:
            found = np.shape(_get(params, path))
        except (KeyError, TypeError) as error:
            raise ValueError(f"{path} is missing, expected {size}") from error
        if found != size:
            raise ValueError(f"{path} has shape {found}, expected {size}")


def _fill_on_host(whole, tensors, stacked, transform) -> np.ndarray:
    layers = whole if stacked else whole[None]
    for layer, tensor in zip(layers, tensors, strict=True):
        layer[...] = transform.apply(tensor[...])
    return whole


def _join(size: tuple[int, ...], parts: Iterator[np.ndarray]) -> np.ndarray:
    first = next(parts)
    if first.shape == size:
        return first
    whole = np.empty(size, first.dtype)
    start = 0
    for part in itertools.chain([first], parts):
        whole[start : start + len(part)] = part
        start += len(part)
    return whole


def _rows(shape: config.Config) -> Iterator[_Row]:
    abstract = model.abstract(shape)
    for pattern, (path, transform) in TABLE.items():
        if pattern == "lm_head.weight" and shape.tie_embeddings:
            continue
        size, stacked = _get(abstract, path).shape, "{}" in pattern
        names = [pattern.format(i) for i in range(size[0])] if stacked else [pattern]
        tensor_size = transfer.tensor_shape(transform, size[1:] if stacked else size)
        yield _Row(path, names, stacked, transform, size, tensor_size)


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
        problems += _untied(named, sources)
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


def _untied(named: Mapping[str, Tensor], sources: dict[str, str]) -> list[str]:
    """Drops the copy of the embedding that some tied checkpoints carry as their head."""
    head = sources.pop("lm_head.weight")
    embedding = sources.get("model.embed_tokens.weight")
    if embedding is None or _equal(named[head], named[embedding]):
        return []
    return [f"{head} differs from {embedding}, but tie_word_embeddings is true"]


def _equal(x: Tensor, y: Tensor) -> bool:
    if tuple(x.shape) != tuple(y.shape):
        return False
    rows = (slice(i, i + 4096) for i in range(0, x.shape[0], 4096))
    return all(np.array_equal(x[part], y[part]) for part in rows)


def _get(tree: Mapping[str, Any], path: str) -> Any:
    for key in path.split("/"):
        tree = tree[key]
    return tree


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split("/")
    for key in parents:
        tree = tree[key]
    tree[last] = value
