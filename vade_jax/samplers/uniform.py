"""Uniform shuffling without replacement, the baseline of every selector."""

import chex
import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.samplers import base


@chex.dataclass(frozen=True)
class UniformState(types.Pytree):
    """How often each item has been rolled out; in a run the counts never differ by more than one."""

    visits_I: jax.Array  # int32


def selector(options: base.Options) -> base.Sampler:
    """Returns the uniform selector: the least visited items, ties broken at random.

    That is a fresh random order every epoch, each item once: within an epoch every draw is
    uniform over the items still due. A batch that reaches over the end of an epoch takes all that
    are due and fills up with others, which then are not due in the next. No permutation has to be
    kept: what is due follows from `visits_I`, the order from the keys given to `propose`.
    """

    def init(num_items: int) -> UniformState:
        return UniformState(visits_I=jnp.zeros(num_items, jnp.int32))

    def propose(state: UniformState, key: jax.Array, num_prompts: int) -> types.Proposal:
        index_M = base.top_b(base.least_visited(state.visits_I), key, num_prompts)
        return base.same_num_rollouts(index_M, options.num_rollouts)

    def update(state: UniformState, feedback: types.Feedback) -> UniformState:
        return UniformState(visits_I=state.visits_I.at[feedback.index_M].add(1))

    return base.compiled(init, propose, update)


SPEC = base.Spec("uniform", base.Options, selector)
