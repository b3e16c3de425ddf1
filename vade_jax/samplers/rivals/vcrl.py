"""VCRL (arXiv 2509.19803): only groups of high variance train, and they come back.

A group with c of n right has v = c (n-c) / (floor(n/2) ceil(n/2)), its variance over the largest possible.
It is trained on if v reaches the threshold kappa, and enters the memory bank with priority v; the
priorities of the others become momentum P + (1 - momentum) (steps since they entered). Items of the bank
take the places of dropped groups. They are rolled out anew and, as in the paper, trained on whatever their
variance; to enter the bank again they have to reach the threshold. Places that the bank cannot fill take
the next items of uniform's order, which the threshold filters: the paper does not say.

The training loop knows nothing of a bank. With replay="same_step" it asks for a second round (its refill of
2 rounds, "missing") of as many prompts as were dropped, and `propose` tells the two rounds of a step apart
by `state.dropped`: 0 before the first; behind it, the places that are empty. So one state describes both

    step t, round 1: dropped = 0    propose B by uniform's order; update sets dropped = d
    step t, round 2: dropped = d    propose d, the best of the bank first; update sets dropped = 0

and a step without dropped groups is over after its first round. With replay="next_step" there is one round,
`dropped` is that of the step before, and the bank's items stand at the front of the next batch.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, types
from vade_jax.samplers import base
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class VcrlOptions(base.Options):
    """The hyperparameters of VCRL."""

    threshold_first: float = fields.fraction(0.3)  # kappa in the first steps
    threshold: float = fields.fraction(0.8)  # kappa after them
    first_steps: int = fields.number(20, at_least=0)  # how many these are
    momentum: float = fields.fraction(0.9)  # alpha_m
    max_replays: int = fields.number(2, at_least=0)  # an item's, out of the bank
    # When items of the bank come back: in the "same_step", at the beginning of the batch of the
    # "next_step", which needs no second round, or in "none".
    replay: str = fields.choice("same_step", "next_step", "none")


@chex.dataclass(frozen=True)
class VcrlState(types.Pytree):
    """Visits, and the memory bank: items with a priority above -inf are in it."""

    visits_I: jax.Array  # int32, replays not counted
    priority_I: jax.Array  # float32
    access_I: jax.Array  # int32, the step that put the item in
    replays_I: jax.Array  # int32, how often the item has been taken out
    last_I: jax.Array  # int32, the step of the latest visit or replay; 0 before the first
    dropped: jax.Array  # int32, groups whose places the next proposal fills from the bank
    step: jax.Array  # int32


def selector(options: VcrlOptions) -> base.Sampler:
    """Returns VCRL: uniform's order, filtered by variance, with a memory bank."""
    # Whether the bank's items come back in a second round of the step that dropped groups.
    within = options.replay == "same_step"

    def init(num_items: int) -> VcrlState:
        zero_I = jnp.zeros(num_items, jnp.int32)
        return VcrlState(
            visits_I=zero_I,
            priority_I=jnp.full(num_items, -jnp.inf),
            access_I=zero_I,
            replays_I=zero_I,
            last_I=zero_I,
            dropped=jnp.zeros((), jnp.int32),
            step=jnp.zeros((), jnp.int32),
        )

    def propose(state: VcrlState, key: jax.Array, num_prompts: int) -> types.Proposal:
        due_I = base.least_visited(state.visits_I)
        taken_I = replayed(state, num_prompts, within=within)
        score_I = jnp.where(taken_I, jnp.inf, due_I)
        index_M = base.top_b(score_I, key, num_prompts)
        return base.same_num_rollouts(index_M, options.num_rollouts)

    def keep(state: VcrlState, feedback: types.Feedback) -> Array:
        # A replayed group is trained on whatever its variance.
        wanted_M = reaches(state, feedback) | taken(state, feedback)
        return (feedback.trials_M > 0) & wanted_M

    def taken(state: VcrlState, feedback: types.Feedback) -> Array:
        """Returns which groups came out of the bank; `state` is the one that proposed them."""
        index_M = feedback.index_M
        return replayed(state, len(index_M), within=within)[index_M]

    def reaches(state: VcrlState, feedback: types.Feedback) -> Array:
        """Returns which groups reach the threshold of their step."""
        # `step` counts steps begun: in a second round it is one ahead of the first's.
        early = state.step - is_second(state) < options.first_steps
        kappa = jnp.where(early, options.threshold_first, options.threshold)
        variance_M = variance(feedback.successes_M, feedback.trials_M)
        return (variance_M >= kappa) & (feedback.trials_M > 0)

    def is_second(state: VcrlState) -> Array:
        """Returns whether a proposal of `state` is its step's second round."""
        return (state.dropped > 0) & within

    def update(state: VcrlState, feedback: types.Feedback) -> VcrlState:
        index_M, taken_M = feedback.index_M, taken(state, feedback)
        step = state.step + ~is_second(state)
        # What a second round drops stays empty: there is no third.
        dropped = jnp.sum(~keep(state, feedback))
        no_places = is_second(state) | (options.replay == "none")
        dropped = jnp.where(no_places, 0, dropped)

        # The bank: out with what was taken, then the others age, then in with the new ones. An item
        # that was taken and is good again enters with its new variance.
        replays_M = state.replays_I[index_M] + taken_M
        priority_I = state.priority_I.at[index_M].add(jnp.where(taken_M, -jnp.inf, 0))
        # Priorities age once a step: where a second round follows, behind that one.
        ends_step = (dropped == 0) | (not within)
        aged_I = aged(priority_I, step - state.access_I, options.momentum)
        priority_I = jnp.where(ends_step, aged_I, priority_I)
        enter_M = reaches(state, feedback) & (replays_M < options.max_replays)
        variance_M = variance(feedback.successes_M, feedback.trials_M)
        priority_M = jnp.where(enter_M, variance_M, priority_I[index_M])
        access_M = jnp.where(enter_M, step, state.access_I[index_M])
        return VcrlState(
            visits_I=state.visits_I.at[index_M].add(~taken_M),
            priority_I=priority_I.at[index_M].set(priority_M),
            access_I=state.access_I.at[index_M].set(access_M),
            replays_I=state.replays_I.at[index_M].set(replays_M),
            last_I=state.last_I.at[index_M].set(step),
            dropped=jnp.int32(dropped),
            step=step,
        )

    needs = base.Needs(
        rounds=2 if within else None,
        passes="any" if options.replay == "none" else "never",
        without={"rounds": "replay='next_step' of vcrl", "passes": "replay='none' of vcrl"},
    )
    return base.compiled(init, propose, update, keep=keep, needs=needs)


SPEC = base.Spec(
    "vcrl",
    VcrlOptions,
    selector,
    goes_with={"refill.max_rounds": 2, "refill.ask": "missing"},
)


def variance(successes_M: Array, trials_M: Array) -> Array:
    """Returns the variance of binary rewards over the largest possible; 0 for one answer or none."""
    half_M = jnp.floor(trials_M / 2)
    most_M = half_M * (trials_M - half_M)
    return successes_M * (trials_M - successes_M) / jnp.maximum(most_M, 1)


def aged(priority_I: Array, age_I: Array, momentum: float) -> Array:
    """Returns the priorities one step later; those that entered in this one, at age 0, stay."""
    later_I = momentum * priority_I + (1 - momentum) * age_I
    later_I = jnp.where(age_I > 0, later_I, priority_I)
    # With momentum 0 an item outside of the bank would be 0 x -inf, NaN.
    return jnp.where(priority_I > -jnp.inf, later_I, -jnp.inf)


def replayed(state: VcrlState, num_prompts: int, *, within: bool = False) -> jax.Array:
    """Returns which items the batch takes from the bank: for each group dropped, the next best.

    Args:
        state: of the selector, when it proposes.
        num_prompts: of the batch. `propose`, `keep` and `update` give the same number, so all three
            agree about what was taken, and no proposal has to carry it.
        within: the batch is of the step that has dropped them, and takes no item twice.

    Returns:
        bool taken_I.
    """
    there_I = state.priority_I > -jnp.inf
    if within:
        there_I &= state.last_I < state.step  # not rolled out in this step's first round
    priority_I = jnp.where(there_I, state.priority_I, -jnp.inf)
    priority_M, index_M = jax.lax.top_k(priority_I, min(num_prompts, len(priority_I)))
    taken_M = (jnp.arange(len(index_M)) < state.dropped) & (priority_M > -jnp.inf)
    return jnp.zeros(priority_I.shape, bool).at[index_M].set(taken_M)
