"""Low-rank adapters (LoRA, arXiv 2106.09685): a linear layer becomes x W + alpha / r (x A) B.

Only A and B are trained. They are part of the linear layers, as `nnx.LoRA`, so all four forwards of the
model use them. Their gradients need no array of the size of W; with effective weights W + A B, made outside
the model, they would. Qwix cannot be used: it creates A and B while it traces a model's matmuls, which does
not work in the body of a `lax.scan` over layers.

A model with an adapter has one tree of parameters. `split` takes the trained part out of it. `join` puts it
back and multiplies B by alpha / r, so that users of the joined tree (the engine, the export) only add x A B.
B starts at 0, so a model with the initial adapter equals the base model and can serve as the reference
policy.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx, traverse_util

from vade_jax.types import Params

NAME = "lora"  # the adapter's key in the tree, next to the key of the kernel
A, B = "lora_a", "lora_b"


@dataclasses.dataclass(frozen=True)
class Adapter:
    """The linear layers that have an adapter, by their paths in the tree, and the adapter's rank."""

    rank: int
    alpha: float
    paths: tuple[str, ...]

    @property
    def scale(self) -> float:
        """The factor of x A B, alpha / r: with it, different ranks need about the same learning rate."""
        return self.alpha / self.rank


def attach(model: nnx.Module, adapter: Adapter, rngs: nnx.Rngs) -> None:
    """Puts A and B into the linear layers at the adapter's paths; in stacked layers they are stacked too."""
    modules = {"/".join(map(str, path)): module for path, module in nnx.iter_graph(model)}
    for path in adapter.paths:
        pair = _beside(modules[path], adapter.rank, rngs)
        # The attribute was None, so NNX treats it as static. `nnx.data` makes it part of the state.
        modules[path].lora = nnx.data(pair)


def _beside(linear: Any, rank: int, rngs: nnx.Rngs) -> nnx.LoRA:
    *stack, width, out_width = linear.kernel.shape
    make = lambda rngs: nnx.LoRA(width, rank, out_width, dtype=linear.dtype, rngs=rngs)
    return nnx.vmap(make)(rngs.split(*stack)) if stack else make(rngs)


def start(abstract: Params, key: jax.Array) -> Params:
    """Returns initial values for an adapter with these shapes, float32, distributed as in PEFT.

    A is uniform in +- 1 / sqrt(width of the input), and B is 0.
    """
    flat = traverse_util.flatten_dict(abstract)
    initial = {}
    for number, (path, leaf) in enumerate(flat.items()):
        initial[path] = jnp.zeros(leaf.shape, jnp.float32)
        if path[-1] == A:
            bound = leaf.shape[-2] ** -0.5
            of_leaf = jax.random.fold_in(key, number)
            initial[path] = jax.random.uniform(of_leaf, leaf.shape, jnp.float32, -bound, bound)
    return traverse_util.unflatten_dict(initial)


def split(params: Params) -> tuple[Params, Params]:
    """Splits a joined tree, with B not yet scaled, into the base and the adapter."""
    base, adapter = {}, {}
    for path, leaf in traverse_util.flatten_dict(params).items():
        (adapter if NAME in path else base)[path] = leaf
    return traverse_util.unflatten_dict(base), traverse_util.unflatten_dict(adapter)


def join(base: Params, adapter: Params, scale: float) -> Params:
    """Returns the joined tree; B is multiplied by `scale`, which is alpha / r."""
    flat: dict[Any, Any] = traverse_util.flatten_dict(adapter)
    scaled = {path: leaf * scale if path[-1] == B else leaf for path, leaf in flat.items()}
    return together(base, traverse_util.unflatten_dict(scaled))


def together(base: Params, adapter: Params) -> Params:
    """Returns one tree with the leaves of both, whatever they are. The inverse of `split`."""
    flat = [traverse_util.flatten_dict(tree) for tree in (base, adapter)]
    return traverse_util.unflatten_dict(flat[0] | flat[1])
