"""Low-rank adapters (LoRA, arXiv 2106.09685): a linear layer becomes x W + alpha / r (x A) B.

Only A and B learn. They hang in the linear layers as `nnx.LoRA`, so every forward has them (whole rows,
grouped, prefill, decode), and nothing of the size of W is made for its gradient, which effective weights
W + A B outside of the model would need. Qwix was the other candidate: it finds the matrix products of a
model in a traced call and makes A and B there, which the body of a `lax.scan` over layers does not allow.

The parameters of a model with an adapter are one tree. What learns is taken out of it with `split` and put
back with `join`, which also scales B: whoever has the whole tree (the engine, the export) adds x A B. As B
starts at 0, the adapter that a run starts with is the base model: it serves as the reference policy.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, traverse_util

from vade_jax.types import Params

NAME = "lora"  # of the adapter in the tree, next to the kernel that it adds to
A, B = "lora_a", "lora_b"


@dataclasses.dataclass(frozen=True)
class Adapter:
    """Which linear layers of a model have an adapter, by their path in the tree, and of what rank."""

    rank: int
    alpha: float
    paths: tuple[str, ...]

    @property
    def scale(self) -> float:
        """What x A B is multiplied by: then another rank wants the same learning rate."""
        return self.alpha / self.rank


def attach(model: nnx.Module, adapter: Adapter, rngs: nnx.Rngs) -> None:
    """Hangs A and B into the linear layers at the adapter's paths; stacked layers have them stacked."""
    modules = {"/".join(map(str, path)): module for path, module in nnx.iter_graph(model)}
    for path in adapter.paths:
        made = _beside(modules[path], adapter.rank, rngs)
        # The attribute was None, which NNX takes for a constant.
        modules[path].lora = nnx.data(made)


def _beside(linear: Any, rank: int, rngs: nnx.Rngs) -> nnx.LoRA:
    *stack, width, out_width = linear.kernel.shape
    make = lambda rngs: nnx.LoRA(width, rank, out_width, dtype=linear.dtype, rngs=rngs)
    return nnx.vmap(make)(rngs.split(*stack)) if stack else make(rngs)


def start(abstract: Params, key: jax.Array) -> Params:
    """Returns the first values of an adapter of these shapes, float32, as PEFT draws them.

    A is uniform in +- 1 / sqrt(width of the input), B is 0.
    """
    flat = traverse_util.flatten_dict(abstract)
    made = {}
    for number, (path, leaf) in enumerate(flat.items()):
        made[path] = jnp.zeros(leaf.shape, jnp.float32)
        if path[-1] == A:
            bound = leaf.shape[-2] ** -0.5
            of_leaf = jax.random.fold_in(key, number)
            made[path] = jax.random.uniform(of_leaf, leaf.shape, jnp.float32, -bound, bound)
    return traverse_util.unflatten_dict(made)


def split(params: Params) -> tuple[Params, Params]:
    """Returns the base and the adapter of a whole tree, in which B is not scaled yet."""
    base, adapter = {}, {}
    for path, leaf in traverse_util.flatten_dict(params).items():
        (adapter if NAME in path else base)[path] = leaf
    return traverse_util.unflatten_dict(base), traverse_util.unflatten_dict(adapter)


def join(base: Params, adapter: Params, scale: float) -> Params:
    """Returns the whole tree, with alpha / r in B."""
    flat: dict[Any, Any] = traverse_util.flatten_dict(adapter)
    scaled = {path: leaf * scale if path[-1] == B else leaf for path, leaf in flat.items()}
    return together(base, traverse_util.unflatten_dict(scaled))


def together(base: Params, adapter: Params) -> Params:
    """Returns one tree of the leaves of both, of whatever kind; the inverse of `split`."""
    flat = [traverse_util.flatten_dict(tree) for tree in (base, adapter)]
    return traverse_util.unflatten_dict(flat[0] | flat[1])
