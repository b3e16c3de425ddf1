"""Uniform shuffling without replacement, the baseline of every selector."""

import chex
import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.samplers import base, checks
from vade_jax.types import Array


@chex.dataclass(frozen=True)
class State:
    """How often each item has been trained on; the counts never differ by more than one."""

    visits_I: Array  # int32


def make(
    *,
    num_rollouts: int = 8,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> base.Sampler:
    """Makes the uniform selector: the least visited items, ties broken at random.

    That is a fresh random order every epoch, each item once: within an epoch every draw is
    uniform over the items still due. A batch that reaches over the end of an epoch takes all that
    are due and fills up with others, which then are not due in the next. No permutation has to be
    kept: what is due follows from `visits_I`, the order from the keys given to `propose`.
    """
    checks.num_rollouts(num_rollouts)

    def init(num_items: int) -> State:
        return State(visits_I=jnp.zeros(num_items, jnp.int32))

    def propose(state: State, key: jax.Array, num_prompts: int) -> types.Proposal:
        due_I = (jnp.min(state.visits_I) - state.visits_I).astype(jnp.float32)
        index_M = base.top_b(due_I, key, num_prompts, mesh=mesh, axis=axis)
        return base.same_num_rollouts(index_M, num_rollouts)

    def update(state: State, feedback: types.Feedback) -> State:
        return State(visits_I=state.visits_I.at[feedback.index_M].add(1))

    sharding = None if mesh is None else jax.sharding.NamedSharding(mesh, jax.P(axis))
    return base.Sampler(
        init=jax.jit(init, static_argnames="num_items", out_shardings=sharding),
        propose=jax.jit(propose, static_argnames="num_prompts"),
        keep=jax.jit(base.keep_all),
        update=jax.jit(update, out_shardings=sharding),
    )
