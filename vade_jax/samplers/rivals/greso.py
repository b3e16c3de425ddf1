"""GRESO (arXiv 2506.02177): prompts that taught nothing lately are mostly skipped.

An epoch is a shuffled pass over the items, as in uniform. If the latest z visits of an item were all right
(or all wrong), an epoch visits it only with probability max(p^z, KEEP_MIN), where p = p_easy (p_hard), and
otherwise skips it. Both probabilities adapt to the share of such groups in the batches.

Departures from Algorithm 1:
- The number of epochs that an item is skipped is decided by one random number per visit instead of one per
  epoch (see `due`).
- Easy and hard mean all right and all wrong; the public code has thresholds on the mean reward.
- The paper's adaptive rollouts, which replace the groups that `keep` drops, are the refill rounds of the
  training loop, each of a whole batch; the paper's rounds have at least 64 prompts and at most a batch.
- `update` runs after every round, so p_easy and p_hard are adjusted once a round, and the target shares are
  those of a round.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, rng, types
from vade_jax.samplers import base, per_item, ranking
from vade_jax.types import Array

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
    """When each item was last visited, and how many visits in a row taught nothing."""

    epoch_I: jax.Array = per_item.starts(-1)  # epoch of the last visit; -1 before the first
    # Latest visits in a row that were all right (> 0) or all wrong (< 0)
    streak_I: jax.Array = per_item.starts(0)
    # In [0, 1), decides for how many epochs the item is skipped
    luck_I: jax.Array = per_item.starts(0.0)
    epoch: jax.Array = per_item.starts(0)  # the current epoch
    step: jax.Array = per_item.starts(0)
    p_easy: jax.Array  # float32
    p_hard: jax.Array  # float32


def selector(options: GresoOptions) -> base.Sampler:
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
        # Only visited items get new luck: a visit decides how long its item is then skipped.
        luck_I = jax.random.uniform(rng.own_key(options.seed, state.step), state.luck_I.shape)
        sign_M, asked_M = base.outcome(feedback), feedback.trials_M > 0
        # Another sign begins a new streak, a mixed group ends it.
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


GOES_WITH = {"refill.max_rounds": 3}
SPEC = base.Spec("greso", GresoOptions, selector, goes_with=GOES_WITH)


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
