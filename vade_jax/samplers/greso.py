"""GRESO (arXiv 2506.02177): prompts that taught nothing lately are skipped, mostly."""

import chex
import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.samplers import base, checks
from vade_jax.types import Array

OWN = 2**20  # folded into the key of `seed`: a run of the same seed folds in its steps


@chex.dataclass(frozen=True)
class State:
    """When each item was last visited, and how often in a row it taught nothing."""

    epoch_I: Array  # int32, of the last visit; -1 before the first
    streak_I: Array  # int32, latest visits all right (> 0) or all wrong (< 0) in a row
    luck_I: Array  # float32 in [0, 1), decides how many epochs the item is skipped
    epoch: Array  # int32, the current one
    p_easy: Array  # float32
    p_hard: Array  # float32
    step: Array  # int32


def make(
    *,
    num_rollouts: int = 8,
    p_easy: float = 0.5,
    p_hard: float = 0.5,
    adjustment: float = 0.01,
    target: float = 0.25,
    easy_share: float = 1 / 3,
    p_min: float = 0.05,
    p_max: float = 0.95,
    keep_min: float = 0.01,
    keep: str = "mixed",
    seed: int = 0,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> base.Sampler:
    """Makes the GRESO selector, Algorithm 1 of arXiv 2506.02177, constants as in its public code.

    Epochs are shuffled passes, as uniform's. Where one comes to an item whose latest z visits were
    all right (or all wrong), it is kept with probability max(p^z, keep_min), p = p_easy (p_hard),
    else skipped until the next. Departures: the number of epochs skipped is drawn at once, as
    floor(log u / log(1 - keep)), with the p of the moment; easy and hard mean all right and all
    wrong, where the code has thresholds on the mean reward. The paper's adaptive rollouts, prompts
    in place of the groups that `keep` drops, are the training loop's refill in rounds (its
    "estimate"). `update` comes after every round: there p_easy and p_hard are adjusted once a
    round, and the targets are shares of the round.

    Args:
        num_rollouts: G, answers to a prompt.
        p_easy: base probability of visiting an item whose latest visit was all right, at first.
        p_hard: the same for all wrong.
        adjustment: what both change by after each update from the second epoch on.
        target: the share of such prompts in a batch that the adjustment aims at.
        easy_share: how much of `target` is all right; the rest is all wrong.
        p_min: lower bound of `p_easy` and `p_hard`.
        p_max: upper bound of both.
        keep_min: lower bound of the probability of a visit.
        keep: the groups to train on: those of right and wrong answers ("mixed"), those whose
            rewards differ ("varied"), or "all".
        seed: decides which items are skipped; the order within an epoch is the given keys'.
        mesh: where the state is sharded over items; None replicates it.
        axis: the axis of `mesh` that items are sharded over.
    """
    checks.num_rollouts(num_rollouts)
    checks.fraction("p_min", p_min)
    checks.within("p_max", p_max, p_min, 1)
    checks.within("p_easy", p_easy, p_min, p_max)
    checks.within("p_hard", p_hard, p_min, p_max)
    checks.fraction("adjustment", adjustment)
    checks.fraction("target", target)
    checks.fraction("easy_share", easy_share)
    checks.within("keep_min", keep_min, 1e-6, 1)
    checks.option("keep", keep, base.KEEPS)

    def init(num_items: int) -> State:
        return State(
            epoch_I=jnp.full(num_items, -1, jnp.int32),
            streak_I=jnp.zeros(num_items, jnp.int32),
            luck_I=jnp.zeros(num_items, jnp.float32),
            epoch=jnp.zeros((), jnp.int32),
            p_easy=jnp.float32(p_easy),
            p_hard=jnp.float32(p_hard),
            step=jnp.zeros((), jnp.int32),
        )

    def propose(state: State, key: jax.Array, num_prompts: int) -> types.Proposal:
        due_I = due(state, keep_min)
        # Overdue items count as those of the current epoch.
        score_I = -jnp.maximum(due_I, current_epoch(state, due_I))
        index_M = base.top_b(score_I, key, num_prompts, mesh=mesh, axis=axis)
        return base.same_num_rollouts(index_M, num_rollouts)

    def update(state: State, feedback: types.Feedback) -> State:
        due_I, index_M = due(state, keep_min), feedback.index_M
        epoch = current_epoch(state, due_I)
        visited_M = jnp.maximum(due_I[index_M], epoch)
        own = jax.random.fold_in(jax.random.key(seed), OWN)
        key = jax.random.fold_in(own, state.step)
        luck_I = jax.random.uniform(key, state.luck_I.shape)
        sign_M, asked_M = outcome(feedback), feedback.trials_M > 0
        streak_M = extended(state.streak_I[index_M], sign_M)
        streak_M = jnp.where(asked_M, streak_M, state.streak_I[index_M])
        change = jnp.where(epoch > 0, adjustment, 0.0)

        def adjusted(p, sign, goal):
            share = jnp.sum(sign_M == sign) / jnp.maximum(jnp.sum(asked_M), 1)
            step = jnp.where(share >= goal, -change, change)
            return jnp.clip(p + step * jnp.any(asked_M), p_min, p_max)

        return State(
            epoch_I=state.epoch_I.at[index_M].set(visited_M.astype(jnp.int32)),
            streak_I=state.streak_I.at[index_M].set(streak_M),
            luck_I=state.luck_I.at[index_M].set(luck_I[index_M]),
            epoch=epoch.astype(jnp.int32),
            p_easy=adjusted(state.p_easy, 1, target * easy_share),
            p_hard=adjusted(state.p_hard, -1, target * (1 - easy_share)),
            step=state.step + 1,
        )

    return base.assemble(
        init, propose, update, keep=base.KEEPS[keep], mesh=mesh, axis=axis
    )


def due(state: State, keep_min: float) -> jax.Array:
    """Returns the epoch of every item's next visit (float32): skipped ones wait for later ones."""
    p_I = jnp.where(state.streak_I > 0, state.p_easy, state.p_hard)
    keep_I = jnp.maximum(p_I ** jnp.abs(state.streak_I), keep_min)
    # P(skipped >= k) = (1 - keep)^k; at keep = 1 a number is divided by -inf, none is skipped.
    skipped_I = jnp.floor(jnp.log1p(-state.luck_I) / jnp.log1p(-keep_I))
    return state.epoch_I + 1 + skipped_I


def current_epoch(state: State, due_I: Array) -> jax.Array:
    """Returns the epoch that the next batch begins in: the earliest one with an item due."""
    return jnp.maximum(state.epoch.astype(due_I.dtype), jnp.nanmin(due_I))


def outcome(feedback: types.Feedback) -> jax.Array:
    """Returns 1 for groups all right, -1 for all wrong, 0 for mixed ones and those without answers."""
    asked_M = feedback.trials_M > 0
    right_M = asked_M & (feedback.successes_M == feedback.trials_M)
    wrong_M = asked_M & (feedback.successes_M == 0)
    return right_M.astype(jnp.int32) - wrong_M.astype(jnp.int32)


def extended(streak_M: Array, sign_M: Array) -> jax.Array:
    """Returns the signed streaks after one more outcome: another sign begins a new one."""
    return jnp.where(streak_M * sign_M > 0, streak_M, 0) + sign_M
