"""Advantages: how much better an answer is than its group."""

import chex
import jax
import jax.numpy as jnp

from vade_jax.types import Array


def group_normalized(
    reward_N: Array,
    group_N: Array,
    num_groups: int,
    *,
    valid_N: Array | None = None,
    std: bool = True,
    epsilon: float = 1e-6,
) -> jax.Array:
    """Returns A = (R - mean) / (std + epsilon) over the valid answers of the same group.

    Eq. 2 of VADE (arXiv 2511.18902), GRPO (arXiv 2402.03300), with verl's epsilon and the
    unbiased std (ddof 1). Groups may have any size and order. A group with max == min has
    advantage exactly 0, where rounding of the mean alone would give up to 0.1. So has an answer
    without any valid companion, where verl takes its reward for its advantage. Invalid answers
    have advantage 0.

    Args:
        reward_N: the training reward.
        group_N: the group of each answer.
        num_groups: M.
        valid_N: which answers count; all, if None.
        std: False divides by nothing (Dr. GRPO, arXiv 2503.20783).
        epsilon: is added to the std.
    """
    chex.assert_rank([reward_N, group_N], 1)
    chex.assert_equal_shape([reward_N, group_N])
    valid_N = (
        jnp.ones(reward_N.shape, bool) if valid_N is None else valid_N.astype(bool)
    )
    chex.assert_equal_shape([reward_N, valid_N])
    reward_N = jnp.where(valid_N, reward_N, 0)

    def total(x_N):
        return jax.ops.segment_sum(x_N, group_N, num_groups)

    count_M = total(valid_N.astype(reward_N.dtype))
    mean_M = total(reward_N) / jnp.maximum(count_M, 1)
    centred_N = jnp.where(valid_N, reward_N - mean_M[group_N], 0)
    std_M = jnp.sqrt(total(centred_N**2) / jnp.maximum(count_M - 1, 1))
    scale_N = std_M[group_N] + epsilon if std else 1
    constant_M = is_constant(reward_N, group_N, num_groups, valid_N)
    return jnp.where(constant_M[group_N], 0, centred_N / scale_N)


def is_constant(
    reward_N: Array, group_N: Array, num_groups: int, valid_N: Array
) -> jax.Array:
    """Returns, for every group, whether max == min over its valid answers (or it has none).

    The share of groups for which this is False is the effective ratio.
    """
    low_N = jnp.where(valid_N, reward_N, jnp.inf)
    high_N = jnp.where(valid_N, reward_N, -jnp.inf)
    low_M = jax.ops.segment_min(low_N, group_N, num_groups)
    high_M = jax.ops.segment_max(high_N, group_N, num_groups)
    return low_M >= high_M
