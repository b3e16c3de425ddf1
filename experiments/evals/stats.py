"""Statistics of repeated answers to a benchmark: means, standard errors, intervals of differences.

`correct_MG` holds 0 or 1 (or False, True) for G answers to each of M items; results of several
benchmarks come as a mapping from their names. Most noise is between items: at 1,000 items and 70 % right, one
standard error is 1.45 points for any number of answers per item.
"""

import dataclasses
import math
import types
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import scipy.special
import scipy.stats

Scores = Mapping[str, np.ndarray]  # benchmark -> correct_MG
Clusters = Mapping[str, Sequence[Hashable]]  # benchmark -> cluster of each item
NO_CLUSTERS: Clusters = types.MappingProxyType({})
NUM_RESAMPLES, LEVEL = 10_000, 0.95


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean with the ends of the 95 % percentile interval around it.

    The ends are None if a benchmark has a single cluster, which shows no variation.
    """

    mean: float
    low: float | None
    high: float | None

    def points(self, sign: str = "") -> str:
        """Returns it in points, as "12.30 [10.05, 14.60]"; the sign "+" shows that of every number."""
        mean, *ends = (x and 100 * x for x in dataclasses.astuple(self))
        known = "" if None in ends else " [{:{s}.2f}, {:{s}.2f}]".format(*ends, s=sign)
        return f"{mean:{sign}.2f}{known}"


def average(correct_MG: np.ndarray) -> float:
    """Returns average@G: the mean over items of the share of right answers."""
    return float(_checked(correct_MG).mean())


def pass_at_k(correct_MG: np.ndarray, k: int) -> float:
    """Returns the mean chance that k answers to an item, drawn without replacement, have a right one.

    The unbiased 1 - C(G - c, k) / C(G, k) for c right ones (Eq. 1 of arXiv 2107.03374).
    """
    correct_MG = _checked(correct_MG)
    num = correct_MG.shape[1]
    if not 1 <= k <= num:
        raise ValueError(f"k={k} must be in 1 .. {num}, the number of answers")
    wrong_M = num - correct_MG.sum(1)
    missed_M = scipy.special.comb(wrong_M, k) / scipy.special.comb(num, k)
    return 1 - float(np.mean(missed_M))


def majority(answer_MG: Sequence[Sequence[Hashable | None]], correct_MG: np.ndarray) -> float:
    """Returns the mean correctness of each item's most frequent answer.

    Equally frequent answers share the vote; None does not vote, and an item of only None is wrong.
    """
    correct_MG = _checked(correct_MG)
    votes = []
    for answer_G, correct_G in zip(answer_MG, correct_MG, strict=True):
        where = {}  # answer -> its places
        for i, answer in enumerate(answer_G):
            if answer is not None:
                where.setdefault(answer, []).append(i)
        most = max(map(len, where.values()), default=0)
        winners = [correct_G[at].mean() for at in where.values() if len(at) == most]
        votes.append(np.mean(winners) if winners else 0.0)
    return float(np.mean(votes))


def standard_error(correct_MG: np.ndarray, cluster_M: Sequence[Hashable] | None = None) -> float:
    """Returns the standard error of `average`, clustered since answers to one item are correlated.

    The sandwich formula sqrt(C / (C - 1) sum_C r_C^2) / M for C clusters, where r_C sums a cluster's
    residuals. They sum to 0 over clusters, so it is C / M times the standard error of their mean.

    Args:
        correct_MG: 0 or 1.
        cluster_M: a label of each item; items with the same label are also correlated, such as versions of
            one problem. By default each item is a cluster.

    Returns:
        The error, NaN for a single cluster.
    """
    mean_M = _checked(correct_MG).mean(1)
    residual_C, _ = _sums(mean_M - mean_M.mean(), cluster_M)
    if len(residual_C) < 2:
        return math.nan
    return float(scipy.stats.sem(residual_C) * len(residual_C) / len(mean_M))


def interval(correct: Scores, clusters: Clusters = NO_CLUSTERS, *, seed: int) -> Estimate:
    """Returns the average over benchmarks, each weighing the same, and its bootstrap interval.

    Items, or their clusters, are resampled within each benchmark.
    """
    return _bootstrap({n: _checked(x_MG).mean(1) for n, x_MG in correct.items()}, clusters, seed)


def difference(
    first: Scores, second: Scores, clusters: Clusters = NO_CLUSTERS, *, seed: int
) -> Estimate:
    """Returns the average of `first` minus that of `second` over benchmarks, paired by item.

    Both are of the same items in the same order; the numbers of answers may differ.
    """
    gaps = {}
    for name in first:
        a_M, b_M = (_checked(side[name]).mean(1) for side in (first, second))
        if len(a_M) != len(b_M):
            raise ValueError(f"{name}: {len(a_M)} and {len(b_M)} items cannot be paired")
        gaps[name] = a_M - b_M
    return _bootstrap(gaps, clusters, seed)


def by_group(
    correct_MG: np.ndarray, groups_M: Sequence[Mapping[str, Sequence[str]]]
) -> dict[str, dict[str, tuple[float, int]]]:
    """Returns (accuracy, items) of each value of each breakdown; an item may have several."""
    mean_M = _checked(correct_MG).mean(1)
    means = {}
    for mean, groups in zip(mean_M, groups_M, strict=True):
        for key, values in groups.items():
            for value in values:
                means.setdefault(key, {}).setdefault(value, []).append(mean)
    return {
        key: {v: (float(np.mean(m)), len(m)) for v, m in sorted(values.items())}
        for key, values in means.items()
    }


def _bootstrap(values: Mapping[str, np.ndarray], clusters: Clusters, seed: int) -> Estimate:
    rng = np.random.default_rng(seed)
    totals = np.zeros(NUM_RESAMPLES)
    # One call a benchmark, not one with all of them as samples: scipy would hold the resamples of all
    # benchmarks at once, which for the paper's five takes over a gigabyte.
    for name, x_M in values.items():
        totals += _resampled_means(x_M, clusters.get(name), rng)
    low, high = np.quantile(totals / len(values), [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    mean = np.mean([x_M.mean() for x_M in values.values()])
    if np.isnan(low):
        return Estimate(float(mean), None, None)
    return Estimate(float(mean), float(low), float(high))


def _resampled_means(
    x_M: np.ndarray, cluster_M: Sequence[Hashable] | None, rng: np.random.Generator
) -> np.ndarray:
    """Returns the mean of `x_M` in each resample of its clusters; NaN for a single cluster."""
    sum_C, size_C = _sums(x_M, cluster_M)
    if len(sum_C) == 1:  # it would always be drawn, and the interval would have no width
        return np.full(NUM_RESAMPLES, np.nan)

    # Clusters differ in size, so a resample's mean is a ratio: their numbers are resampled, not values.
    def mean(index_C, axis):
        return sum_C[index_C].sum(axis) / size_C[index_C].sum(axis)

    return scipy.stats.bootstrap(
        (np.arange(len(sum_C)),),
        mean,
        n_resamples=NUM_RESAMPLES,
        batch=max(1, 2**22 // len(sum_C)),
        vectorized=True,
        method="percentile",
        rng=rng,
    ).bootstrap_distribution


def _sums(x_M: np.ndarray, cluster_M: Sequence[Hashable] | None) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sum and the number of items of each cluster, by default of each item."""
    if cluster_M is None:
        return x_M, np.ones(len(x_M))
    _, place_M = np.unique(np.asarray(cluster_M), return_inverse=True)
    return np.bincount(place_M, x_M), np.bincount(place_M)


def _checked(correct_MG: np.ndarray) -> np.ndarray:
    correct_MG = np.asarray(correct_MG, np.float64)
    if correct_MG.ndim != 2 or 0 in correct_MG.shape:
        raise ValueError(f"correct has shape {correct_MG.shape}, not [items, answers]")
    if not np.isin(correct_MG, (0, 1)).all():
        raise ValueError("correct must be 0 or 1 for every answer")
    return correct_MG
