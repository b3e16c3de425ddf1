"""One invertible table: Hugging Face tensor <-> parameter path and transform.

Import, export and the weight sync of engines all read it. Both naming schemes are accepted
(`model.layers`, `visual` as published; `model.language_model`, `model.visual` as transformers 5
keeps them in memory); the published one is written.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from vade_jax import types
from vade_jax.models.qwen25vl import config, model

_MAX_LISTED = 8  # problems named in one error


class Transform(NamedTuple):
    """How one tensor changes; `invert` undoes `apply`."""

    apply: Callable[[np.ndarray], np.ndarray]
    invert: Callable[[np.ndarray], np.ndarray]


SAME = Transform(lambda x: x, lambda x: x)
LINEAR = Transform(lambda x: x.T, lambda x: x.T)  # torch keeps (out, in)
CONV = Transform(  # (D, channel, frame, y, x) <-> (frame, E, D)
    lambda x: x.transpose(2, 1, 3, 4, 0).reshape(2, 588, -1),
    lambda x: x.reshape(2, 3, 14, 14, -1).transpose(4, 1, 0, 2, 3),
)

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
    result = []
    for pattern, leaf, transform in _rows(shape):
        size = leaf.shape[1:] if "{}" in pattern else leaf.shape
        hf_shape = transform.invert(np.broadcast_to(np.int8(0), size)).shape
        count = leaf.shape[0] if "{}" in pattern else 1
        result += [(pattern.format(i), hf_shape) for i in range(count)]
    return result


def to_params(
    shape: config.Config, named: Mapping[str, np.ndarray], dtype: Any = np.float32
) -> types.Params:
    """Returns Hugging Face tensors as parameters (numpy arrays of `dtype`).

    Raises:
      ValueError: tensors are missing, extra, given twice or of another shape; all are named.
    """
    sources = _sources(shape, named)
    params: dict[str, Any] = {}
    for pattern, leaf, transform in _rows(shape):
        value = np.empty(leaf.shape, dtype)
        if "{}" in pattern:
            for i, layer in enumerate(value):
                layer[...] = transform.apply(
                    np.asarray(named[sources[pattern.format(i)]])
                )
        else:
            value[...] = transform.apply(np.asarray(named[sources[pattern]]))
        _put(params, TABLE[pattern][0], value)
    return params


def from_params(
    shape: config.Config, params: types.Params
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (published name, tensor): one stacked parameter is on the host at a time."""
    for pattern, leaf, transform in _rows(shape):
        path = TABLE[pattern][0]
        value = _get(params, path)
        if np.shape(value) != leaf.shape:
            raise ValueError(
                f"{path} has shape {np.shape(value)}, expected {leaf.shape}"
            )
        value = np.asarray(value)
        for i, layer in enumerate(value if "{}" in pattern else value[None]):
            yield pattern.format(i), np.ascontiguousarray(transform.invert(layer))


def _rows(
    shape: config.Config,
) -> Iterator[tuple[str, jax.ShapeDtypeStruct, Transform]]:
    abstract = model.abstract(shape)
    for pattern, (path, transform) in TABLE.items():
        if pattern != "lm_head.weight" or not shape.tie_embeddings:
            yield pattern, _get(abstract, path), transform


def _sources(shape: config.Config, named: Mapping[str, np.ndarray]) -> dict[str, str]:
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


def _untied(named: Mapping[str, np.ndarray], sources: dict[str, str]) -> list[str]:
    """Drops the copy of the embedding that some tied checkpoints carry as their head."""
    head = sources.pop("lm_head.weight")
    embedding = sources.get("model.embed_tokens.weight")
    if embedding is None or np.array_equal(named[head], named[embedding]):
        return []
    return [f"{head} differs from {embedding}, but tie_word_embeddings is true"]


def _get(tree: Mapping[str, Any], path: str) -> Any:
    for key in path.split("/"):
        tree = tree[key]
    return tree


def _put(tree: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split("/")
    for key in parents:
        tree = tree.setdefault(key, {})
    tree[last] = value
