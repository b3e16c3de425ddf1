"""VCRL (arXiv 2509.19803): only groups of high variance are trained on, and their items come back.

A group with c of n right has v = c (n-c) / (floor(n/2) ceil(n/2)), its variance over the largest possible.
If v reaches the threshold kappa, the group is trained on, and its item enters the memory bank with priority
v. The priority P of every other item in the bank becomes momentum P + (1 - momentum) (steps since it
entered). Items of the bank take the places of dropped groups. They are rolled out again and, as in the paper,
trained on whatever their variance; to enter the bank again, they must reach the threshold. The paper does not
say what happens if the bank is too small: here the next items in the order of uniform take the places left,
and the threshold filters them.

The training loop does not know the bank. With replay="same_step", it asks for a second round (its refill with
2 rounds, "missing") with as many prompts as groups were dropped. `state.dropped` tells `propose` which round
it is: it is 0 before the first round, and after it the number of places to fill:

    step t, round 1: dropped = 0    propose B in the order of uniform; update sets dropped = d
    step t, round 2: dropped = d    propose d, the best of the bank first; update sets dropped = 0

A step without dropped groups ends after its first round. With replay="next_step" there is one round,
`dropped` is from the step before, and items of the bank take as many places in the next batch.
"""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, types
from vade_jax.samplers import base, per_item, ranking
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class VcrlOptions(base.Options):
    threshold_first: float = fields.fraction(0.3)  # kappa in the first steps
    threshold: float = fields.fraction(0.8)  # kappa after the first steps
    first_steps: int = fields.number(20, at_least=0)  # Number of steps with `threshold_first`
    momentum: float = fields.fraction(0.9)  # alpha_m, momentum of the priorities in the bank
    max_replays: int = fields.number(2, at_least=0)  # Most times that an item comes out of the bank
    # When items of the bank come back: in a second round of the "same_step", or in the next one's batch
    replay: str = fields.choice("same_step", "next_step")


@chex.dataclass(frozen=True)
class VcrlState(types.Pytree):
    """Visits, and the memory bank: the items with a priority above -inf."""

    visits_I: jax.Array = per_item.starts(0)  # without replays
    priority_I: jax.Array = per_item.starts(-float("inf"))
    access_I: jax.Array = per_item.starts(0)  # the step in which the item entered the bank
    replays_I: jax.Array = per_item.starts(0)  # how often the item came out of the bank
    last_I: jax.Array = per_item.starts(0)  # step of the latest visit or replay; 0 before the first
    # Groups whose places the next proposal fills from the bank
    dropped: jax.Array = per_item.starts(0)
    step: jax.Array = per_item.starts(0)


def selector(options: VcrlOptions) -> base.Sampler:
    # Whether items of the bank come back in a second round of the step that dropped the groups.
    within = options.replay == "same_step"

    def propose(state: VcrlState, key: jax.Array, num_prompts: int) -> types.Proposal:
        taken_I = replayed(state, num_prompts, within=within)
        score_I = jnp.where(taken_I, jnp.inf, ranking.least_visited(state.visits_I))
        return ranking.best(score_I, key, num_prompts, options.num_rollouts)

    def is_second(state: VcrlState) -> Array:
        """Returns whether `state` proposes the second round of a step."""
        return (state.dropped > 0) & within

    def taken(state: VcrlState, feedback: types.Feedback) -> Array:
        """Returns which groups came out of the bank, where `state` is the one that proposed them."""
        return replayed(state, len(feedback.index_M), within=within)[feedback.index_M]

    def reaches(state: VcrlState, feedback: types.Feedback) -> Array:
        # The update after the first round counts the step, so in the second round `step` is one higher.
        early = state.step - is_second(state) < options.first_steps
        kappa = jnp.where(early, options.threshold_first, options.threshold)
        variance_M = variance(feedback.successes_M, feedback.trials_M)
        return (variance_M >= kappa) & (feedback.trials_M > 0)

    def keep(state: VcrlState, feedback: types.Feedback) -> Array:
        # A replayed group is trained on whatever its variance.
        return (feedback.trials_M > 0) & (reaches(state, feedback) | taken(state, feedback))

    def update(state: VcrlState, feedback: types.Feedback) -> VcrlState:
        index_M, taken_M = feedback.index_M, taken(state, feedback)
        step = state.step + ~is_second(state)
        # Places of groups that a second round drops stay empty: there is no third round.
        dropped = jnp.where(is_second(state), 0, jnp.sum(~keep(state, feedback)))

        # The bank: remove the items that were taken, age the others, then add the new ones. An item that
        # was taken and reaches the threshold again enters with its new variance.
        replays_M = state.replays_I[index_M] + taken_M
        priority_I = state.priority_I.at[index_M].add(jnp.where(taken_M, -jnp.inf, 0))
        # Priorities age once per step, after its last round.
        aged_I = aged(priority_I, step - state.access_I, options.momentum)
        priority_I = jnp.where((dropped == 0) | (not within), aged_I, priority_I)
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

    removed_by = {"rounds": "replay='next_step' of vcrl"} if within else {}
    needs = base.Needs(rounds=2 if within else 1, passes="never", removed_by=removed_by)
    init = functools.partial(per_item.begin, VcrlState)
    return base.compiled(init, propose, update, keep=keep, needs=needs)


GOES_WITH = {"refill.max_rounds": 2, "refill.ask": "missing"}
SPEC = base.Spec("vcrl", VcrlOptions, selector, goes_with=GOES_WITH)


def variance(successes_M: Array, trials_M: Array) -> Array:
    """Returns the variance of binary rewards over the largest possible; 0 for one answer or none."""
    half_M = jnp.floor(trials_M / 2)
    most_M = half_M * (trials_M - half_M)
    return successes_M * (trials_M - successes_M) / jnp.maximum(most_M, 1)


def aged(priority_I: Array, age_I: Array, momentum: float) -> Array:
    """Returns the priorities one step later; items of age 0, which entered in this step, keep theirs."""
    later_I = momentum * priority_I + (1 - momentum) * age_I
    later_I = jnp.where(age_I > 0, later_I, priority_I)
    # With momentum 0, an item outside of the bank would get 0 x -inf, which is NaN.
    return jnp.where(priority_I > -jnp.inf, later_I, -jnp.inf)


def replayed(state: VcrlState, num_prompts: int, *, within: bool = False) -> jax.Array:
    """Returns which items a batch takes from the bank: for each dropped group, the next best item.

    `propose`, `keep` and `update` pass the same state and size of the batch, so all three agree about what
    was taken, and the proposal does not have to store it. `within` says that the batch is the second round
    of the step that dropped the groups, whose items are not taken again.
    """
    there_I = state.priority_I > -jnp.inf
    if within:
        there_I &= state.last_I < state.step  # not rolled out in this step's first round
    priority_I = jnp.where(there_I, state.priority_I, -jnp.inf)
    priority_M, index_M = jax.lax.top_k(priority_I, min(num_prompts, len(priority_I)))
    taken_M = (jnp.arange(len(index_M)) < state.dropped) & (priority_M > -jnp.inf)
    return jnp.zeros(priority_I.shape, bool).at[index_M].set(taken_M)
