"""DIVA-GRPO's advantages (arXiv 2603.01106): within a variant, and within a problem.

A problem comes as several variants with k answers each. An answer is compared with those to the same
variant (local) and with all answers to the problem (global). Each of the two is normalised over the
batch, weighted by the variant's difficulty and scaled by the range of its group's rewards; the
advantage is their sum.
"""

import chex
import jax
import jax.numpy as jnp

from vade_jax import arrays
from vade_jax.losses import advantages
from vade_jax.types import Array


@jax.jit
def two_level(
    reward_N: Array,
    group_N: Array,
    problem_M: Array,
    difficulty_M: Array,
    *,
    valid_N: Array | None = None,
    weight: float = 0.1,
    highest: float | None = None,
    local_share: float = 1.0,
    global_share: float = 1.0,
) -> jax.Array:
    """Returns `advantage_N`: 0 for invalid answers and for problems whose rewards are all equal.

    `group_N` is the slot (variant) of each answer; `problem_M`, from 0, and `difficulty_M` are those of each
    slot. Without `valid_N` all answers count. `highest` is R_max, the largest possible reward; by default the
    largest reward in this batch. The other options are those of `DivaOptions`.
    """
    chex.assert_equal_shape([problem_M, difficulty_M])
    num_slots = len(problem_M)
    valid_N = jnp.ones(reward_N.shape, bool) if valid_N is None else valid_N
    reward_N = jnp.where(valid_N, reward_N, 0)  # a NaN of an invalid answer must not spread
    most = jnp.max(jnp.abs(reward_N)) if highest is None else highest
    # Not 0, as all ranges are 0 if there is no reward.
    top = jnp.maximum(most, jnp.finfo(reward_N.dtype).tiny)
    relative_N = above_problem(difficulty_M, problem_M)[group_N]

    def level(of_N):
        # There are never more problems than slots, so `num_slots` is enough segments for both.
        a_N = advantages.group_normalized(reward_N, of_N, num_slots, valid_N=valid_N)
        a_N = over_batch(a_N, of_N, num_slots, valid_N)
        # z-scores hide the range of the rewards: a group of 0 and 0.1 (the format alone) would count as much
        # as one of 0 and 1.
        low_M, high_M = arrays.group_range(reward_N, of_N, num_slots, valid_N)
        # A group without a valid answer has inf and -inf.
        return a_N * (jnp.where(low_M <= high_M, high_M - low_M, 0) / top)[of_N]

    local_N = level(group_N)
    global_N = by_difficulty(level(problem_M[group_N]), relative_N, weight)
    advantage_N = local_share * local_N + global_share * global_N
    return jnp.where(valid_N, advantage_N, 0)


def problems(variant_M: Array) -> jax.Array:
    """Returns the problem of each slot, from 0: a slot of variant 0 begins the next one."""
    return jnp.cumsum(jnp.asarray(variant_M) == 0) - 1


def above_problem(difficulty_M: Array, problem_M: Array) -> Array:
    """Returns how much harder each slot is than the mean slot of its problem."""

    def total(x_M):
        return jax.ops.segment_sum(x_M, problem_M, len(problem_M))

    mean_Q = total(difficulty_M) / jnp.maximum(total(jnp.ones_like(difficulty_M)), 1)
    return difficulty_M - mean_Q[problem_M]


def over_batch(a_N: Array, group_N: Array, num_groups: int, valid_N: Array) -> Array:
    """Returns z-scores over the batch of advantages that are already z-scores within groups.

    Their mean is 0. The squares of a group of n answers add up to n - 1 unless its rewards are equal,
    so the variance over N answers is the sum of (n - 1) over the other groups, over N - 1. For groups
    of one size this is, up to a constant, a / sqrt(effective ratio).
    """
    count_N = valid_N.astype(a_N.dtype)
    count_M = jax.ops.segment_sum(count_N, group_N, num_groups)
    effective_M = jax.ops.segment_max(jnp.abs(a_N), group_N, num_groups) > 0
    squares = jnp.sum(jnp.where(effective_M, count_M - 1, 0))
    return a_N / (jnp.sqrt(squares / jnp.maximum(jnp.sum(count_N) - 1, 1)) + 1e-6)


def by_difficulty(a_N: Array, relative_N: Array, weight: float) -> jax.Array:
    """Returns exp(k d sign(a)) a: success on a harder variant counts more, failure less.

    d, `relative_N`, is how much harder the answer's variant is than the mean one of its problem.
    """
    return jnp.exp(weight * relative_N * jnp.sign(a_N)) * a_N
