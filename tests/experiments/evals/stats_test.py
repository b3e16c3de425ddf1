"""Statistics against hand numbers, enumeration and NumPy."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

from experiments.evals import stats

CORRECT = np.array([[1, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])


def draws(seed, rate, num_items=300, num_answers=4):
    rng = np.random.default_rng(seed)
    p_M = rng.beta(3 * rate, 3 * (1 - rate), num_items)
    return rng.random((num_items, num_answers)) < p_M[:, None]


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_pass_at_k_is_the_mean_over_all_subsets(k):
    subsets = list(itertools.combinations(range(4), k))
    expected = np.mean([[row[list(s)].any() for s in subsets] for row in CORRECT])
    assert stats.pass_at_k(CORRECT, k) == pytest.approx(expected, abs=1e-12)


def test_majority():
    answers = [
        ["b", "b", "c", "d"],  # right
        ["a", "c", "c", "a"],  # a tie of right and wrong
        [None, None, None, "x"],  # None does not vote
        [None] * 4,  # wrong whatever was scored
    ]
    correct = [[1, 1, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 0]]
    assert stats.majority(answers, correct) == (1 + 0.5) / 4
    assert stats.majority([["a", "a", "a", "b"]], [[1, 1, 0, 1]]) == pytest.approx(2 / 3)


def test_standard_error_is_that_of_the_items_means():
    correct = draws(0, 0.7)
    expected = np.std(correct.mean(1), ddof=1) / math.sqrt(len(correct))
    assert stats.standard_error(correct) == pytest.approx(expected, rel=1e-12)
    pooled = math.sqrt(correct.mean() * (1 - correct.mean()) / correct.size)
    assert stats.standard_error(correct) > 1.2 * pooled
    # a thousand items at seventy per cent: sqrt(0.7 * 0.3 / 999)
    thousand = (np.arange(1000) < 700)[:, None]
    assert stats.standard_error(thousand) == pytest.approx(0.0145, abs=1e-5)


def test_standard_error_of_clusters():
    # Residuals -0.4375 + (0.5, 0.25, 0, 1); clusters {0, 3} and {1, 2} sum to +-0.625.
    expected = math.sqrt(2 / 1 * 2 * 0.625**2) / 4
    assert stats.standard_error(CORRECT, list("abba")) == pytest.approx(expected)
    copies = np.repeat(CORRECT, 5, 0)
    clustered = stats.standard_error(copies, np.repeat(np.arange(4), 5))
    assert clustered == pytest.approx(stats.standard_error(CORRECT), rel=1e-12)
    assert stats.standard_error(copies) < 0.6 * clustered
    assert math.isnan(stats.standard_error(CORRECT, [0] * 4))


def test_intervals_are_quantiles_of_resampled_means():
    first, second = draws(1, 0.7), draws(2, 0.6)
    gap_M = first.mean(1) - second.mean(1)
    index = np.random.default_rng(3).integers(300, size=(10_000, 300))
    low, high = np.quantile(gap_M[index].mean(1), [0.025, 0.975])
    found = stats.difference({"x": first}, {"x": second}, seed=3)
    expected = stats.Estimate(gap_M.mean(), low, high)
    assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(expected))


def test_difference_is_paired():
    first = draws(1, 0.5)
    second = first.copy()
    second[:30] = False  # never better
    found = stats.difference({"x": first}, {"x": second}, seed=0)
    alone = stats.interval({"x": first}, seed=0)
    assert found.low > 0 and found.high - found.low < 0.7 * (alone.high - alone.low)
    back = stats.difference({"x": second}, {"x": first}, seed=0)
    assert back.mean == pytest.approx(-found.mean) and back.high < 0
    fewer = stats.difference({"x": first}, {"x": first[:, :1]}, seed=5)
    assert fewer.mean == pytest.approx(first.mean() - first[:, 0].mean())
    again, other = (stats.difference({"x": first}, {"x": first[:, :1]}, seed=s) for s in (5, 6))
    assert again == fewer != other


def test_the_average_weighs_benchmarks_the_same():
    correct = {"small": draws(1, 0.9, 50), "large": draws(2, 0.3, 2000, 1)}
    found = stats.interval(correct, seed=0)
    parts = [stats.average(x) for x in correct.values()]
    assert found.mean == pytest.approx(np.mean(parts))
    errors = [stats.standard_error(x) for x in correct.values()]
    half = 1.96 * math.hypot(*errors) / 2
    assert (found.high - found.low) / 2 == pytest.approx(half, rel=0.05)


def test_clusters_are_resampled_whole():
    correct = draws(1, 0.5, 100)
    copies, cluster_M = np.repeat(correct, 5, 0), np.repeat(np.arange(100), 5)
    plain = stats.interval({"x": correct}, seed=0)
    clustered = stats.interval({"x": copies}, {"x": cluster_M}, seed=0)
    assert clustered.mean == pytest.approx(plain.mean)
    assert clustered.low == pytest.approx(plain.low, abs=1e-9)
    assert clustered.high == pytest.approx(plain.high, abs=1e-9)
