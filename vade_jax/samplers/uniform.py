"""Uniform selection without replacement, the baseline of every other selector."""

import functools

import chex
import jax

from vade_jax import types
from vade_jax.samplers import base, per_item, ranking


@chex.dataclass(frozen=True)
class UniformState(types.Pytree):
    """How often each item has been rolled out; within a run the counts differ by at most one."""

    visits_I: jax.Array = per_item.starts(0)


def selector(options: base.Options) -> base.Sampler:
    """Returns the uniform selector: the least visited items, with ties broken at random.

    Every epoch visits each item once, in a new random order. A batch that crosses the end of an epoch
    takes all items still due, and fills up with items of the next epoch, which are then not due again in it.
    No permutation is stored: `visits_I` says which items are due, and the keys given to `propose` decide
    their order.
    """

    def propose(state: UniformState, key: jax.Array, num_prompts: int) -> types.Proposal:
        due_I = ranking.least_visited(state.visits_I)
        return ranking.best(due_I, key, num_prompts, options.num_rollouts)

    def update(state: UniformState, feedback: types.Feedback) -> UniformState:
        return UniformState(visits_I=state.visits_I.at[feedback.index_M].add(1))

    return base.compiled(functools.partial(per_item.begin, UniformState), propose, update)


SPEC = base.Spec("uniform", base.Options, selector)
