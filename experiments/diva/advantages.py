"""DIVA-GRPO's advantages (arXiv 2603.01106): within a variant, and within a problem.

A problem comes as several variants with k answers each. An answer is compared with those to the same
variant (local) and with all answers to the problem (global). Each of the two is normalised over the
batch, weighted by the variant's difficulty and scaled by the range of its group's rewards; the
advantage is their sum.
"""

import functools

import chex
import jax
import jax.numpy as jnp

from vade_jax import arrays
from vade_jax.losses import advantages
from vade_jax.types import Array

OPTIONS = {
    "norm": ("sequence", "code", "off"),
    "weighted": ("global", "both"),
    "balance": ("range", "low_reward", "off"),
}
_LOW, _LOW_FACTOR = 0.15, 0.1  # of the authors' code


@functools.partial(jax.jit, static_argnames=("norm", "weighted", "balance"))
def two_level(
    reward_N: Array,
    group_N: Array,
    problem_M: Array,
    difficulty_M: Array,
    *,
    valid_N: Array | None = None,
    length_N: Array | None = None,
    norm: str = "sequence",
    weight: float = 0.1,
    weighted: str = "global",
    balance: str = "range",
    highest: float | None = None,
    local_share: float = 1.0,
    global_share: float = 1.0,
    padded_length: float = 0.0,
) -> jax.Array:
    """Returns `advantage_N`: 0 for invalid answers and for problems whose rewards are all equal.

    Args:
        reward_N: the training reward.
        group_N: the slot (variant) of each answer.
        problem_M: the problem of each slot, from 0.
        difficulty_M: of each slot.
        valid_N: which answers count; all, if None.
        length_N: tokens; only the norm "code" needs them.
        norm: over the batch. "sequence" is `over_batch`; "code" is `over_tokens`, as the authors'
            code does it, which gives even equal rewards a small advantage.
        weight: k of `by_difficulty`.
        weighted: whether only the "global" advantages are weighted by difficulty, or "both".
        balance: "range" multiplies by (max - min reward of the group) / R_max; "low_reward", the code's,
            multiplies by 0.1 where all rewards are below 0.15.
        highest: R_max, what an answer can earn; None: the largest reward here, whatever its sign.
        local_share: factor on the local advantages.
        global_share: factor on the global advantages.
        padded_length: tokens of a padded row, for the norm "code".

    Raises:
        ValueError: an unknown option.
    """
    chosen = {"norm": norm, "weighted": weighted, "balance": balance}
    for name, value in chosen.items():
        if value not in OPTIONS[name]:
            known = ", ".join(OPTIONS[name])
            raise ValueError(f"{name}={value!r}: choose one of {known}")
    chex.assert_equal_shape([problem_M, difficulty_M])
    num_slots = len(problem_M)
    valid_N = jnp.ones(reward_N.shape, bool) if valid_N is None else valid_N
    reward_N = jnp.where(valid_N, reward_N, 0)  # a NaN of an invalid answer must not spread
    most = jnp.max(jnp.abs(reward_N)) if highest is None else highest
    # Not 0: without any reward all ranges are.
    top = jnp.maximum(most, jnp.finfo(reward_N.dtype).tiny)
    relative_N = above_problem(difficulty_M, problem_M)[group_N]

    def level(of_N, weigh):
        # There are never more problems than slots, so `num_slots` is enough segments for both.
        a_N = advantages.group_normalized(reward_N, of_N, num_slots, valid_N=valid_N)
        if norm == "sequence":
            a_N = over_batch(a_N, of_N, num_slots, valid_N)
        elif norm == "code":
            assert length_N is not None
            a_N = over_tokens(a_N, length_N, valid_N, padded_length)
        if weigh:
            a_N = by_difficulty(a_N, relative_N, weight)
        # z-scores hide how far the rewards lie apart: a group of 0 and 0.1 (the format alone)
        # would teach as much as one of 0 and 1.
        low_M, high_M = _lowest_and_highest(reward_N, of_N, num_slots, valid_N)
        if balance == "range":
            a_N *= ((high_M - low_M) / top)[of_N]
        elif balance == "low_reward":
            a_N *= jnp.where(high_M < _LOW, _LOW_FACTOR, 1)[of_N]
        return a_N

    local_N = level(group_N, weighted == "both")
    global_N = level(problem_M[group_N], True)
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
    """Returns the z-score over the batch of advantages that are z-scores of their groups.

    Their mean is 0. The squares of a group of n answers add up to n - 1 unless its rewards are equal,
    so the variance over N answers is the sum of (n - 1) over the other groups, over N - 1. For groups
    of one size this is, up to a constant, a / sqrt(effective ratio).
    """
    count_N = valid_N.astype(a_N.dtype)
    count_M = jax.ops.segment_sum(count_N, group_N, num_groups)
    effective_M = jax.ops.segment_max(jnp.abs(a_N), group_N, num_groups) > 0
    squares = jnp.sum(jnp.where(effective_M, count_M - 1, 0))
    return a_N / (jnp.sqrt(squares / jnp.maximum(jnp.sum(count_N) - 1, 1)) + 1e-6)


def over_tokens(a_N: Array, length_N: Array, valid_N: Array, padded_length: float) -> jax.Array:
    """Returns the z-score over an array [N, padded_length] of tokens whose padding counts as 0.

    As in the authors' code, each token of an answer carries the answer's advantage. The array itself is never
    made; its sums follow from the lengths. A batch in which all are equal is returned unchanged.
    """
    length_N = jnp.where(valid_N, length_N, 0).astype(a_N.dtype)
    size = jnp.sum(valid_N) * padded_length
    mean = jnp.sum(a_N * length_N) / size
    variance = (jnp.sum(a_N**2 * length_N) - size * mean**2) / (size - 1)
    std = jnp.where(variance > 0, jnp.sqrt(jnp.maximum(variance, 0)), 1)
    return jnp.where(valid_N, (a_N - mean) / std, 0)


def by_difficulty(a_N: Array, relative_N: Array, weight: float) -> jax.Array:
    """Returns exp(k d sign(a)) a: success on a harder variant counts more, failure less.

    d, `relative_N`, is how much harder the answer's variant is than the mean one of its problem.
    """
    return jnp.exp(weight * relative_N * jnp.sign(a_N)) * a_N


def _lowest_and_highest(reward_N, group_N, num_groups, valid_N):
    """Returns the lowest and highest valid reward of each group; 0 and 0 for a group without."""
    low_M, high_M = arrays.group_range(reward_N, group_N, num_groups, valid_N)
    some_M = low_M <= high_M  # a group without a valid answer has inf and -inf
    return jnp.where(some_M, low_M, 0), jnp.where(some_M, high_M, 0)
