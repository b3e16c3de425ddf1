"""Advantages: how much better each answer is than the mean of its group."""

import chex
import jax
import jax.numpy as jnp

from vade_jax import arrays
from vade_jax.types import Array


def group_normalized(
    reward_N: Array,
    group_N: Array,
    num_groups: int,
    *,
    valid_N: Array | None = None,
    scale_by_std: bool = True,
    epsilon: float = 1e-6,
) -> jax.Array:
    """Returns A = (R - mean) / (std + epsilon) over the valid answers of the same group.

    Eq. 2 of VADE (arXiv 2511.18902) and GRPO (arXiv 2402.03300), with verl's epsilon and the unbiased
    std (ddof 1). Groups may have any size and order, and answers of a group need not be neighbours.

    There are two departures from verl. If all rewards of a group are equal, its advantages are exactly 0;
    rounding can leave the mean about 1e-7 off, which divided by epsilon would be about 0.1. And an answer
    that is alone in its group has advantage 0, where verl takes its reward.

    Args:
        reward_N: the training reward.
        group_N: the group of each answer, from 0 to `num_groups` - 1.
        num_groups: M; static under jit.
        valid_N: which answers count; all, if None. The others have advantage 0, and their rewards,
            which may be NaN, change nothing.
        scale_by_std: whether to divide by the std; False: not (Dr. GRPO, arXiv 2503.20783).
        epsilon: added to the std.

    Returns:
        `advantage_N` of the rewards' dtype.
    """
    chex.assert_rank([reward_N, group_N], 1)
    chex.assert_equal_shape([reward_N, group_N])
    valid_N = jnp.ones(reward_N.shape, bool) if valid_N is None else valid_N.astype(bool)
    chex.assert_equal_shape([reward_N, valid_N])
    reward_N = jnp.where(valid_N, reward_N, 0)

    def total(x_N: Array) -> jax.Array:
        return jax.ops.segment_sum(x_N, group_N, num_groups)

    count_M = total(valid_N.astype(reward_N.dtype))
    mean_M = total(reward_N) / jnp.maximum(count_M, 1)
    centred_N = jnp.where(valid_N, reward_N - mean_M[group_N], 0)
    std_M = jnp.sqrt(total(centred_N**2) / jnp.maximum(count_M - 1, 1))
    scale_N = std_M[group_N] + epsilon if scale_by_std else 1
    varies_M = arrays.varies(reward_N, group_N, num_groups, valid_N)
    return jnp.where(varies_M[group_N], centred_N / scale_N, 0)
