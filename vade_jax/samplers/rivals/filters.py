"""Two selectors that drop groups: GRESO then skips their prompts, VCRL replays others."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, rng, types
from vade_jax.samplers import base, per_item, ranking
from vade_jax.types import Array

# ------------------------------------------------------------------------------ GRESO
# Of the public code, as are the defaults of the options
P_MIN, P_MAX = 0.05, 0.95  # bounds of p_easy and p_hard
KEEP_MIN = 0.01  # lowest probability of a visit


@dataclasses.dataclass(frozen=True)
class GresoOptions(base.Options):
    # Initial probabilities of visiting an item whose latest visit was all right, or all wrong
    p_easy: float = fields.number(0.5, at_least=P_MIN, at_most=P_MAX)
    p_hard: float = fields.number(0.5, at_least=P_MIN, at_most=P_MAX)
    # Change of p_easy and p_hard in every update, from the second epoch on
    adjustment: float = fields.fraction(0.01)
    target: float = fields.fraction(0.25)  # Preferred share of groups all right or all wrong
    easy_share: float = fields.fraction(1 / 3)  # Share of `target` that is all right
    # Seed that decides which items are skipped; the keys of the run decide the order in an epoch
    seed: int = fields.seed()


@chex.dataclass(frozen=True)
class GresoState(types.Pytree):
    """When each item was last visited, and how many visits in a row had constant rewards."""

    epoch_I: jax.Array = per_item.starts(-1)  # epoch of the last visit; -1 before the first
    # Latest visits in a row that were all right (> 0) or all wrong (< 0)
    streak_I: jax.Array = per_item.starts(0)
    # In [0, 1), decides for how many epochs the item is skipped
    luck_I: jax.Array = per_item.starts(0.0)
    epoch: jax.Array = per_item.starts(0)  # the current epoch
    step: jax.Array = per_item.starts(0)
    p_easy: jax.Array  # float32
    p_hard: jax.Array  # float32


def greso(options: GresoOptions) -> base.Sampler:
    """Returns GRESO (arXiv 2506.02177): prompts without a signal lately are mostly skipped.

    An epoch is a shuffled pass over the items, as in uniform. If the latest z visits of an item were all
    right (or all wrong), an epoch visits it only with probability max(p^z, KEEP_MIN), where p = p_easy
    (p_hard), and otherwise skips it. Both probabilities adapt to the share of such groups in the batches.

    Departures from Algorithm 1:
    - The number of epochs that an item is skipped is decided by one random number per visit instead of one
      per epoch (see `due`).
    - Easy and hard mean all right and all wrong; the public code has thresholds on the mean reward.
    - The paper's adaptive rollouts, which replace the groups that `keep` drops, are the refill rounds of the
      training loop, each of a whole batch; the paper's rounds have at least 64 prompts and at most a batch.
    - `update` runs after every round, so p_easy and p_hard are adjusted once a round, and the target shares
      are those of a round.
    """

    def init(num_items: int) -> GresoState:
        p_easy, p_hard = np.float32(options.p_easy), np.float32(options.p_hard)
        return per_item.begin(GresoState, num_items, p_easy=p_easy, p_hard=p_hard)

    def propose(state: GresoState, key: jax.Array, num_prompts: int) -> types.Proposal:
        due_I = due(state)
        # Overdue items rank like those of the current epoch: the order within an epoch is random, and
        # an item left over from an earlier one does not come first.
        score_I = -jnp.maximum(due_I, current_epoch(state, due_I))
        return ranking.best(score_I, key, num_prompts, options.num_rollouts)

    def update(state: GresoState, feedback: types.Feedback) -> GresoState:
        due_I, index_M = due(state), feedback.index_M
        epoch = current_epoch(state, due_I)
        # A batch that crosses the end of an epoch visits some items of the next epoch.
        visited_M = jnp.maximum(due_I[index_M], epoch)
        # Only visited items get a new random number: it decides how long the item is then skipped.
        luck_I = jax.random.uniform(rng.own_key(options.seed, state.step), state.luck_I.shape)
        sign_M, asked_M = base.outcome(feedback), feedback.trials_M > 0
        # A group with the opposite result begins a new streak, a mixed group ends it.
        before_M = state.streak_I[index_M]
        streak_M = jnp.where(before_M * sign_M > 0, before_M, 0) + sign_M
        streak_M = jnp.where(asked_M, streak_M, before_M)
        # The first epoch visits every item, so its shares say nothing about the skipping.
        change = jnp.where(epoch > 0, options.adjustment, 0.0)

        def adjusted(p: jax.Array, sign: int, goal: float) -> jax.Array:
            share = jnp.sum(sign_M == sign) / jnp.maximum(jnp.sum(asked_M), 1)
            step = jnp.where(share >= goal, -change, change)
            return jnp.clip(p + step * jnp.any(asked_M), P_MIN, P_MAX)

        easy_goal = options.target * options.easy_share
        hard_goal = options.target * (1 - options.easy_share)
        return GresoState(
            epoch_I=state.epoch_I.at[index_M].set(visited_M.astype(jnp.int32)),
            streak_I=state.streak_I.at[index_M].set(streak_M),
            luck_I=state.luck_I.at[index_M].set(luck_I[index_M]),
            epoch=epoch.astype(jnp.int32),
            p_easy=adjusted(state.p_easy, 1, easy_goal),
            p_hard=adjusted(state.p_hard, -1, hard_goal),
            step=state.step + 1,
        )

    return base.compiled(init, propose, update, keep=base.keep_mixed)


GRESO = base.Spec("greso", GresoOptions, greso, goes_with={"refill.max_rounds": 3})


def due(state: GresoState) -> jax.Array:
    """Returns the epoch of every item's next visit, float32.

    In the paper, each epoch visits an item with probability `keep`, so it skips at least k epochs with
    probability (1 - keep)^k. One uniform number u per item gives the same distribution: k is the integer
    part of log(1 - u) / log(1 - keep).
    """
    p_I = jnp.where(state.streak_I > 0, state.p_easy, state.p_hard)
    keep_I = jnp.maximum(p_I ** jnp.abs(state.streak_I), KEEP_MIN)
    # Without a streak, keep = 1: the quotient is a finite number over -inf, 0, and no epoch is skipped.
    skipped_I = jnp.floor(jnp.log1p(-state.luck_I) / jnp.log1p(-keep_I))
    return state.epoch_I + 1 + skipped_I


def current_epoch(state: GresoState, due_I: Array) -> jax.Array:
    """Returns the epoch that the next batch begins in: the earliest with an item due; it never decreases."""
    return jnp.maximum(state.epoch.astype(due_I.dtype), jnp.nanmin(due_I))


# ------------------------------------------------------------------------------ VCRL
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


def vcrl(options: VcrlOptions) -> base.Sampler:
    """Returns VCRL (arXiv 2509.19803): only groups of high variance are trained on; their items come back.

    A group with c of n right has v = c (n-c) / (floor(n/2) ceil(n/2)), its variance over the largest
    possible. If v reaches the threshold kappa, the group is trained on, and its item enters the memory bank
    with priority v. The priority P of every other item in the bank becomes momentum P + (1 - momentum) (steps
    since it entered). Items of the bank take the places of dropped groups. They are rolled out again and, as
    in the paper, trained on whatever their variance; to enter the bank again, they must reach the threshold.
    The paper does not say what happens if the bank is too small: here the next items in the order of uniform
    take the places left, and the threshold filters them.

    The training loop does not know the bank. With replay="same_step", it asks for a second round (its refill
    with 2 rounds, "missing") with as many prompts as groups were dropped. `state.dropped` tells `propose`
    which round it is: it is 0 before the first round, and after it the number of places to fill:

        step t, round 1: dropped = 0    propose B in the order of uniform; update sets dropped = d
        step t, round 2: dropped = d    propose d, the best of the bank first; update sets dropped = 0

    A step without dropped groups ends after its first round. With replay="next_step" there is one round,
    `dropped` is from the step before, and items of the bank take as many places in the next batch.
    """
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
        # Priorities age once per step, after its last round; those that entered in this step stay. With
        # momentum 0, an item outside of the bank would get 0 x -inf, which is NaN.
        age_I, momentum = step - state.access_I, options.momentum
        ages_I = (age_I > 0) & (priority_I > -jnp.inf) & ((dropped == 0) | (not within))
        aged_I = momentum * priority_I + (1 - momentum) * age_I
        priority_I = jnp.where(ages_I, aged_I, priority_I)
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
VCRL = base.Spec("vcrl", VcrlOptions, vcrl, goes_with=GOES_WITH)


def variance(successes_M: Array, trials_M: Array) -> Array:
    """Returns the variance of binary rewards over the largest possible; 0 for one answer or none."""
    half_M = jnp.floor(trials_M / 2)
    most_M = half_M * (trials_M - half_M)
    return successes_M * (trials_M - successes_M) / jnp.maximum(most_M, 1)


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
