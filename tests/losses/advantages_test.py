"""Group-normalised advantages on flat, ragged, shuffled groups."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.losses import advantages

normalized = jax.jit(
    advantages.group_normalized, static_argnames=("num_groups", "scale_by_std", "epsilon")
)


def oracle(reward_N, group_N, valid_N, std):
    advantage_N = np.zeros(len(reward_N))
    for group in np.unique(group_N):
        member_N = (group_N == group) & valid_N
        r = reward_N[member_N].astype(np.float64)
        if len(r) > 1 and r.max() > r.min():
            scale = r.std(ddof=1) + 1e-6 if std else 1
            advantage_N[member_N] = (r - r.mean()) / scale
    return advantage_N


def test_by_hand():
    # mean 1/4, squares 9/16 + 3/16 = 3/4, over G - 1 = 3: std 1/2, so (1 - 1/4) / (1/2) = 1.5
    advantage_N = normalized(jnp.array([1.0, 0, 0, 0]), jnp.zeros(4, int), 1)
    np.testing.assert_allclose(advantage_N, [1.5, -0.5, -0.5, -0.5], rtol=3e-6)
    advantage_N = normalized(jnp.array([1.0, 0, 0, 0]), jnp.zeros(4, int), 1, scale_by_std=False)
    np.testing.assert_allclose(advantage_N, [0.75, -0.25, -0.25, -0.25])


@pytest.mark.parametrize("std", [True, False])
def test_ragged_shuffled_groups_with_invalid_answers(std):
    rng = np.random.default_rng(0)
    group_N = rng.permutation(np.repeat(np.arange(6), [2, 8, 5, 1, 9, 3]))
    reward_N = rng.choice([0, 0.1, 0.9, 1], len(group_N)).astype(np.float32)
    valid_N = rng.random(len(group_N)) < 0.8
    reward_N[~valid_N] = np.nan  # what is invalid must not leak
    advantage_N = normalized(reward_N, group_N, 7, valid_N=valid_N, scale_by_std=std)
    expected_N = oracle(reward_N, group_N, valid_N, std)
    np.testing.assert_allclose(advantage_N, expected_N, rtol=1e-5, atol=1e-6)
    assert not np.any(advantage_N[~valid_N])


@pytest.mark.parametrize("reward", [0, 0.1, 0.7, 0.9, 1])
def test_constant_groups_are_exactly_zero(reward):
    group_N = np.repeat(np.arange(9), [2, 3, 6, 7, 8, 12, 13, 16, 32])
    reward_N = np.full(len(group_N), reward, np.float32)
    assert not np.any(normalized(reward_N, group_N, 9))


def test_shift_of_rewards_and_order_change_nothing():
    rng = np.random.default_rng(1)
    group_N = np.repeat(np.arange(4), 8)
    reward_N = rng.integers(0, 2, 32).astype(np.float32)
    advantage_N = normalized(reward_N, group_N, 4)
    np.testing.assert_allclose(
        normalized(reward_N + 2, group_N, 4), advantage_N, rtol=1e-5, atol=1e-6
    )
    order_N = rng.permutation(32)
    np.testing.assert_allclose(
        normalized(reward_N[order_N], group_N[order_N], 4),
        advantage_N[order_N],
        rtol=1e-5,
        atol=1e-6,
    )
