"""GRESO (arXiv 2506.02177): prompts that taught nothing lately are skipped, mostly.

Epochs are shuffled passes, as uniform's. Where one comes to an item whose latest z visits were all right
(or all wrong), the item is kept with probability max(p^z, keep_min), p = p_easy (p_hard), else skipped
until the next epoch. The two probabilities follow how many such groups a batch has.

Departures from Algorithm 1: the number of epochs skipped is drawn at once, with the p of the moment (see
`due`); easy and hard mean all right and all wrong, where the public code has thresholds on the mean
reward. The paper's adaptive rollouts, prompts in place of the groups that `keep` drops, are the training
loop's refill in rounds (its "estimate"). `update` comes after every round: there p_easy and p_hard are
adjusted once a round, and the targets are shares of the round.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class GresoOptions(base.Options):
    """The hyperparameters of GRESO, constants as in its public code."""

    # Probability of visiting an item whose latest visit was all right (all wrong), at first.
    p_easy: float = 0.5
    p_hard: float = 0.5
    adjustment: float = fields.fraction(0.01)  # of both, an update from epoch 2 on
    target: float = fields.fraction(0.25)  # the share of such prompts in a batch
    easy_share: float = fields.fraction(1 / 3)  # of `target` that is all right
    p_min: float = fields.fraction(0.05)  # bounds of p_easy and p_hard
    p_max: float = 0.95
    keep_min: float = fields.number(0.01, at_least=1e-6, at_most=1)  # of a visit
    # Of which items are skipped; the order in an epoch is the given keys'.
    seed: int = fields.seed()

    def __post_init__(self):
        super().__post_init__()
        low, high = self.p_min, self.p_max
        fields.Interval(at_least=low, at_most=1).check("p_max", high)
        fields.Interval(at_least=low, at_most=high).check("p_easy", self.p_easy)
        fields.Interval(at_least=low, at_most=high).check("p_hard", self.p_hard)


@chex.dataclass(frozen=True)
class GresoState(types.Pytree):
    """When each item was last visited, and how often in a row it taught nothing."""

    epoch_I: jax.Array  # int32, of the last visit; -1 before the first
    streak_I: jax.Array  # int32, latest visits all right (> 0) or all wrong (< 0) in a row
    luck_I: jax.Array  # float32 in [0, 1), decides how many epochs the item is skipped
    epoch: jax.Array  # int32, the current one
    p_easy: jax.Array  # float32
    p_hard: jax.Array  # float32
    step: jax.Array  # int32


def selector(options: GresoOptions) -> base.Sampler:
    """Returns GRESO, Algorithm 1 of arXiv 2506.02177."""

    def init(num_items: int) -> GresoState:
        return GresoState(
            epoch_I=jnp.full(num_items, -1, jnp.int32),
            streak_I=jnp.zeros(num_items, jnp.int32),
            luck_I=jnp.zeros(num_items, jnp.float32),
            epoch=jnp.zeros((), jnp.int32),
            p_easy=jnp.float32(options.p_easy),
            p_hard=jnp.float32(options.p_hard),
            step=jnp.zeros((), jnp.int32),
        )

    def propose(state: GresoState, key: jax.Array, num_prompts: int) -> types.Proposal:
        due_I = due(state, options.keep_min)
        # Overdue items count as those of the current epoch: an epoch's order is random, and nobody
        # comes first for having been left over.
        score_I = -jnp.maximum(due_I, current_epoch(state, due_I))
        index_M = base.top_b(score_I, key, num_prompts)
        return base.same_num_rollouts(index_M, options.num_rollouts)

    def update(state: GresoState, feedback: types.Feedback) -> GresoState:
        due_I, index_M = due(state, options.keep_min), feedback.index_M
        epoch = current_epoch(state, due_I)
        # A batch that reaches over the end of an epoch has visited some items in the next.
        visited_M = jnp.maximum(due_I[index_M], epoch)
        # New luck only for those visited: how long an item is skipped is settled at its visit.
        luck_I = jax.random.uniform(rng.own_key(options.seed, state.step), state.luck_I.shape)
        sign_M, asked_M = base.outcome(feedback), feedback.trials_M > 0
        streak_M = extended(state.streak_I[index_M], sign_M)
        streak_M = jnp.where(asked_M, streak_M, state.streak_I[index_M])
        # The first epoch visits everything: its shares say nothing about the skipping.
        change = jnp.where(epoch > 0, options.adjustment, 0.0)

        def adjusted(p: jax.Array, sign: int, goal: float) -> jax.Array:
            """Returns p lowered where too many groups had this outcome, else raised."""
            share = jnp.sum(sign_M == sign) / jnp.maximum(jnp.sum(asked_M), 1)
            step = jnp.where(share >= goal, -change, change)
            return jnp.clip(p + step * jnp.any(asked_M), options.p_min, options.p_max)

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


SPEC = base.Spec(
    "greso",
    GresoOptions,
    selector,
    goes_with={"refill.max_rounds": 3, "refill.ask": "estimate"},
)


def due(state: GresoState, keep_min: float) -> jax.Array:
    """Returns the epoch of every item's next visit, float32.

    Tossing a coin of probability `keep` in every epoch until it says "visit" skips k epochs or more
    with probability (1 - keep)^k. So one uniform number u an item decides it: k is the whole part of
    log(1 - u) / log(1 - keep). Nothing has to be decided, or stored, epoch by epoch.
    """
    p_I = jnp.where(state.streak_I > 0, state.p_easy, state.p_hard)
    keep_I = jnp.maximum(p_I ** jnp.abs(state.streak_I), keep_min)
    # At keep = 1 (no streak) a number is divided by -inf: none is skipped.
    skipped_I = jnp.floor(jnp.log1p(-state.luck_I) / jnp.log1p(-keep_I))
    return state.epoch_I + 1 + skipped_I


def current_epoch(state: GresoState, due_I: Array) -> jax.Array:
    """Returns the epoch that the next batch begins in: the earliest one with an item due.

    It never goes back: lower p_easy and p_hard move items to later epochs, higher ones to earlier.
    """
    return jnp.maximum(state.epoch.astype(due_I.dtype), jnp.nanmin(due_I))


def extended(streak_M: Array, sign_M: Array) -> jax.Array:
    """Returns the signed streaks after one more outcome: another sign begins a new one."""
    return jnp.where(streak_M * sign_M > 0, streak_M, 0) + sign_M
