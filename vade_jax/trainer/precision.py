"""bfloat16 weights that lose no update: each has a remainder, the rest of its float32 value.

A bfloat16 has 8 significant bits, so an update of 1e-6 to a weight of 0.02 is always rounded
away. Here the optimizer keeps the low 16 bits of every float32 weight as a uint16; the weight itself,
rounded, is what the model computes with. Together they are float32 again, bit for bit, and the optimizer
never sees anything else. Of the alternatives (arXiv 2010.06192) Kahan's compensation in bfloat16 rounds
too, and stochastic rounding adds noise and a key. optax has neither.

Bytes a weight: 2 + 2, 2 for the first moment, and 4 for the second, as bfloat16 would lose its steps of 0.1
%. These are 10; float32 takes 12. (The sum of the gradients is float32 in both, four more.)
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from vade_jax.types import Array, Params


class State(NamedTuple):
    """The state of the optimizer of bfloat16 weights."""

    low: Params  # uint16, one a weight
    inner: Any


HALF = 0x8000  # half of the step from one bfloat16 to the next, in the bits of a float32


def round_to_pair(x: Array) -> tuple[jax.Array, jax.Array]:
    """Returns float32 as the nearest bfloat16 and the uint16 that `join` takes back.

    These are the two halves of the bits of x plus HALF, so a remainder of 0x8000 means that x is a bfloat16.
    Halfway between two, the one farther from 0 is taken: the even one could need a 17th bit.

    HALF is added because of a bug: when the low half of a float's bits is stored, the ptxas of CUDA 13.0
        converts the number to an integer instead (F2I), which loses the remainder. After an integer sum it
        stores the bits.
    """
    bits = jax.lax.bitcast_convert_type(x, jnp.uint32) + HALF
    weight = jax.lax.bitcast_convert_type((bits >> 16).astype(jnp.uint16), jnp.bfloat16)
    return weight, bits.astype(jnp.uint16)


def join(weight: Array, low: Array) -> jax.Array:
    """Returns the float32 that `round_to_pair` split into these two."""
    high = jax.lax.bitcast_convert_type(weight, jnp.uint16).astype(jnp.uint32) << 16
    return jax.lax.bitcast_convert_type((high | low) - HALF, jnp.float32)


def of_bfloat16(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """Returns an optimizer of bfloat16 weights that applies `inner` to their float32 values.

    Its `update` returns the new weights instead of changes; callers recognise it by its state, a `State`.
    """

    def init(params: Params) -> State:
        low = jax.tree.map(lambda x: jnp.full(x.shape, HALF, jnp.uint16), params)
        return State(low, inner.init(to_float32(params)))

    def update(gradients: Params, state: State, params: Params) -> tuple[Params, State]:
        params_32 = jax.tree.map(join, params, state.low)
        updates, inner_state = inner.update(to_float32(gradients), state.inner, params_32)
        params_32 = optax.apply_updates(params_32, updates)
        pairs = jax.tree.map(round_to_pair, params_32)
        weight, low = jax.tree.transpose(
            jax.tree.structure(params), jax.tree.structure((0, 0)), pairs
        )
        return weight, State(low, inner_state)

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]


def to_float32(tree: Params) -> Params:
    """Returns the tree with all leaves in float32."""
    return jax.tree.map(lambda x: x.astype(jnp.float32), tree)
