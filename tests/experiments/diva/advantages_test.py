"""DIVA's two-level advantages: by hand, by independent loops, and by the definitions."""

import jax.numpy as jnp
import numpy as np
import pytest

from experiments.diva import advantages


def two_level(reward_N, group_N, problem_M, difficulty_M, **options):
    arrays = (reward_N, group_N, problem_M, difficulty_M)
    return np.asarray(advantages.two_level(*map(jnp.asarray, arrays), **options))


def z_score(x):
    """Of a group, ddof 1 and 1e-6; 0 if all are equal."""
    if len(x) < 2 or np.ptp(x) == 0:
        return np.zeros(len(x))
    return (x - x.mean()) / (x.std(ddof=1) + 1e-6)


def loop(reward_N, group_N, problem_M, difficulty_M, valid_N, **options):
    """Everything once more, one group after another, in float64."""
    o = {"weight": 0.1, "local_share": 1.0, "global_share": 1.0} | options
    reward_N, out_N = np.asarray(reward_N, float), np.zeros(len(reward_N))
    parts = {"local": np.asarray(group_N), "global": np.asarray(problem_M)[group_N]}
    for level, of_N in parts.items():
        a_N, factor_N = np.zeros(len(reward_N)), np.ones(len(reward_N))
        for g in np.unique(of_N):
            member_N = (of_N == g) & valid_N
            r = reward_N[member_N]
            a_N[member_N] = z_score(r)
            if len(r):
                factor_N[member_N] = r.max() - r.min()
        live_N = np.flatnonzero(valid_N)
        std = a_N[live_N].std(ddof=1)
        a_N[live_N] = (a_N[live_N] - a_N[live_N].mean()) / (std + 1e-6)
        if level == "global":
            for n in live_N:
                of_problem_M = np.asarray(problem_M) == problem_M[group_N[n]]
                mean = np.mean(np.asarray(difficulty_M, float)[of_problem_M])
                relative = difficulty_M[group_N[n]] - mean
                a_N[n] *= np.exp(o["weight"] * relative * np.sign(a_N[n]))
        out_N += o[f"{level}_share"] * a_N * factor_N
    return np.where(valid_N, out_N, 0)


def example(seed):
    """Uneven problems and groups, shuffled answers, some invalid, some groups constant."""
    rng = np.random.default_rng(seed)
    problem_M = np.repeat(np.arange(5), rng.permutation([1, 2, 2, 3, 4]))
    difficulty_M = rng.uniform(1, 9, 12).astype(np.float32)
    group_N = np.repeat(np.arange(12), rng.permutation([2, 5, 7] * 4))
    group_N = rng.permutation(group_N)
    reward_N = rng.choice([0, 0.1, 0.9, 1], len(group_N)).astype(np.float32)
    reward_N[group_N % 3 == 0] = 0.1
    reward_N[problem_M[group_N] == 1] = 1
    return {
        "reward_N": reward_N,
        "group_N": group_N,
        "problem_M": problem_M,
        "difficulty_M": difficulty_M,
        "valid_N": rng.random(len(group_N)) < 0.85,
    }


# ------------------------------------------------------------------------------ by hand
def agrees(actual, expected, rtol=1e-5):
    np.testing.assert_allclose(actual, expected, rtol=rtol)


def test_local_and_global_z_scores_by_hand():
    # Two variants, rewards (1, 0) and (1, 1). Local: +-1/sqrt(2) and 0, whose squares over the batch are
    # 1 of 4 - 1. All four: mean 3/4, variance (3 (1/4)^2 + (3/4)^2) / 3 = 1/4, so +1/2, -3/2, +1/2, +1/2.
    args = [1.0, 0, 1, 1], [0, 0, 1, 1], [0, 0], [5.0, 5.0]
    local_N = np.array([1, -1, 0, 0]) * np.sqrt(3 / 2)
    global_N = np.array([0.5, -1.5, 0.5, 0.5])
    agrees(two_level(*args, local_share=2.0, global_share=3.0), 2 * local_N + 3 * global_N)
    # difficulties 4 and 8, mean 6, k = 0.1: success on the harder variant counts e^{0.2}, failure e^{-0.2}
    args = [1.0, 0, 1, 0], [0, 0, 1, 1], [0, 0], [4.0, 8.0]
    up, down = np.exp(0.2), np.exp(-0.2)
    weighted_N = np.array([down, -up, up, -down]) * np.sqrt(3) / 2
    agrees(two_level(*args, local_share=0.0), weighted_N)


def test_the_range_of_rewards_tells_a_tenth_from_a_whole():
    """The paper's example: equal z-scores, -0.447 and 1.789, for rewards of very different size."""
    reward_N = np.array([0, 0, 0, 0, 0.1, 0, 0, 0, 0, 1])
    args = reward_N, np.repeat([0, 1], 5), [0, 1], [5.0, 5.0]
    z = np.array([-0.4472136] * 4 + [1.7888544]) / np.sqrt(8 / 9)  # over the batch
    agrees(two_level(*args, global_share=0.0), [*(0.1 * z), *z], rtol=1e-4)


@pytest.mark.parametrize("scale", [10.0, 0.01, -1.0])
def test_the_range_is_a_share_of_the_highest_reward(scale):
    """A judge that pays up to ten teaches as much as one that pays up to one."""
    reward_N = np.array([0, 0, 0, 0, 0.5, 0, 0, 0, 0, 1])
    args = np.repeat([0, 1], 5), [0, 1], [5.0, 6.0]
    plain_N = two_level(reward_N, *args)
    agrees(np.sign(scale) * two_level(scale * reward_N, *args), plain_N, rtol=1e-3)
    assert two_level(0 * reward_N, *args).tolist() == [0] * 10
    # Where it is known, a batch without a right answer does not set it.
    options = {"global_share": 0.0, "highest": 1.0}
    expected = 0.05 * 1.7888544 / np.sqrt(8 / 9)
    agrees(two_level(0.1 * reward_N, *args, **options)[4], expected, rtol=1e-3)


def test_problems_begin_at_variant_0():
    variant_M = np.array([0, 1, 2, 0, 0, 1])
    assert advantages.problems(variant_M).tolist() == [0, 0, 0, 1, 2, 2]


# ------------------------------------------------------------------------------ by a loop
def test_uneven_groups_agree_with_a_loop():
    options = {"local_share": 0.7, "global_share": 1.3, "weight": 0.15}
    for seed in range(4):
        x = example(seed)
        expected_N = loop(**x, **options)
        x["reward_N"] = np.where(x["valid_N"], x["reward_N"], np.nan)  # must not leak
        a_N = two_level(**x, **options)
        np.testing.assert_allclose(a_N, expected_N, rtol=2e-4, atol=2e-5)
        assert not np.any(a_N[~x["valid_N"]])


def test_no_difference_and_no_answer_at_all_are_zero():
    args = [0, 0, 1, 1], [0, 0], [5.0, 6.0]
    for reward_N, valid_N in ((np.ones(4), True), (np.full(4, np.nan), False)):
        a_N = two_level(reward_N, *args, valid_N=np.full(4, valid_N))
        assert a_N.tolist() == [0] * 4
