"""What VADE is compared with: uniform selection, and DAPO's filter around it."""

import dataclasses
import functools

import chex
import jax

from vade_jax import fields, types
from vade_jax.samplers import base, per_item, ranking, vade


# ------------------------------------------------------------------------------ uniform
@chex.dataclass(frozen=True)
class UniformState(types.Pytree):
    """How often each item has been rolled out; within a run the counts differ by at most one."""

    visits_I: jax.Array = per_item.starts(0)


def uniform(options: base.Options) -> base.Sampler:
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


UNIFORM = base.Spec("uniform", base.Options, uniform)


# ------------------------------------------------------------------------------ DAPO
BASES = {spec.name: spec for spec in (UNIFORM, vade.SPEC)}
KEEPS = {"mixed": base.keep_mixed, "varied": base.keep_varied}


@dataclasses.dataclass(frozen=True)
class DapoOptions(base.AroundOptions):
    """The hyperparameters of DAPO's filter and of the selector that it wraps ("uniform" in the paper)."""

    # Groups that are kept: those with right and wrong answers ("mixed"), or those whose training rewards
    # differ ("varied")
    keep: str = fields.choice("mixed", *KEEPS)


def dapo(options: DapoOptions) -> base.Sampler:
    """Returns DAPO's filter around another selector: the constraint of Eq. 11 of arXiv 2503.14476.

    It keeps groups with 0 < correct < G. In the paper, dynamic sampling rolls out prompts until a batch
    of such groups is full; here the training loop's refill rounds do that. The wrapped selector proposes
    the prompts of every round and learns from all of its answers.
    """
    return base.below(BASES, options)._replace(keep=jax.jit(KEEPS[options.keep]))


# The comparison in VADE's paper allows at most three times the rollouts.
DAPO = base.Spec("dapo", DapoOptions, dapo, goes_with={"refill.max_rounds": 3})
