"""What repeated answers to a benchmark say: means, their errors, intervals of differences.

`correct_MG` holds 0 or 1 (or False, True) for G answers to each of M items; results of several
benchmarks come as a mapping from their names. Noise between items is most of the noise: at 1,000
items and 70 % right, one standard error is 1.45 points however many answers each item has.
"""

import dataclasses
import math
import types
from collections.abc import Hashable, Mapping, Sequence

import numpy as np

Clusters = Mapping[str, Sequence[Hashable]]  # benchmark -> cluster of each item

_CHUNK = 2**22  # numbers drawn at once


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate with the ends of a percentile interval around it."""

    mean: float
    low: float
    high: float


def average(correct_MG: np.ndarray) -> float:
    """Returns average@G: the mean over items of the share of right answers."""
    return float(_checked(correct_MG).mean())


def pass_at_k(correct_MG: np.ndarray, k: int) -> float:
    """Returns the mean chance that k of an item's answers, drawn without return, have a right one.

    The unbiased 1 - C(G - c, k) / C(G, k) for c right ones (https://arxiv.org/abs/2107.03374).
    """
    correct_MG = _checked(correct_MG)
    num = correct_MG.shape[1]
    if not 1 <= k <= num:
        raise ValueError(f"k={k} must be in 1 .. {num}, the number of answers")
    wrong_M = num - correct_MG.sum(1).astype(int)
    missed = [math.comb(wrong, k) / math.comb(num, k) for wrong in wrong_M.tolist()]
    return 1 - float(np.mean(missed))


def majority(
    answer_MG: Sequence[Sequence[Hashable | None]], correct_MG: np.ndarray
) -> float:
    """Returns the mean correctness of each item's most frequent answer.

    Equally frequent answers share the vote; None does not vote, and an item of only None is wrong.
    """
    correct_MG = _checked(correct_MG)
    shape = [len(answer_G) for answer_G in answer_MG]
    if shape != [correct_MG.shape[1]] * len(correct_MG):
        raise ValueError(f"answers do not have the shape {correct_MG.shape} of correct")
    pairs = zip(answer_MG, correct_MG, strict=True)
    return float(np.mean([_vote(*pair) for pair in pairs]))


def _vote(answer_G: Sequence[Hashable | None], correct_G: np.ndarray) -> float:
    where = {}
    for i, answer in enumerate(answer_G):
        if answer is not None:
            where.setdefault(answer, []).append(i)
    most = max(map(len, where.values()), default=0)
    winners = [
        correct_G[found].mean() for found in where.values() if len(found) == most
    ]
    return float(np.mean(winners)) if winners else 0.0


def standard_error(
    correct_MG: np.ndarray, cluster_M: Sequence[Hashable] | None = None
) -> float:
    """Returns the standard error of `average`, clustered: answers to one item hang together.

    Args:
      correct_MG: 0 or 1.
      cluster_M: items that hang together too, such as versions of one problem; by default each
        item is a cluster. The sandwich formula with factor C / (C - 1) for C clusters.
    """
    mean_M = _checked(correct_MG).mean(1)
    residual_C, _ = _sums(mean_M - mean_M.mean(), cluster_M)
    num = len(residual_C)
    if num < 2:
        return math.nan
    return float(np.sqrt(num / (num - 1) * np.sum(residual_C**2)) / len(mean_M))


def interval(
    correct: Mapping[str, np.ndarray],
    clusters: Clusters = types.MappingProxyType({}),
    *,
    seed: int,
    num_resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """Returns the average over benchmarks, each weighing the same, and its bootstrap interval.

    Items (or clusters of them, where given) are resampled within each benchmark.
    """
    means = {name: _checked(x_MG).mean(1) for name, x_MG in correct.items()}
    return _bootstrap(means, clusters, seed, num_resamples, level)


def difference(
    first: Mapping[str, np.ndarray],
    second: Mapping[str, np.ndarray],
    clusters: Clusters = types.MappingProxyType({}),
    *,
    seed: int,
    num_resamples: int = 10_000,
    level: float = 0.95,
) -> Interval:
    """Returns the average of `first` minus that of `second` over benchmarks, paired by item.

    Both are of the same items in the same order; the numbers of answers may differ.
    """
    if first.keys() != second.keys():
        raise ValueError(f"{sorted(first)} cannot be paired with {sorted(second)}")
    gaps = {}
    for name in first:
        a_M, b_M = (_checked(side[name]).mean(1) for side in (first, second))
        if len(a_M) != len(b_M):
            raise ValueError(
                f"{name}: {len(a_M)} and {len(b_M)} items cannot be paired"
            )
        gaps[name] = a_M - b_M
    return _bootstrap(gaps, clusters, seed, num_resamples, level)


def by_group(
    correct_MG: np.ndarray, groups_M: Sequence[Mapping[str, Sequence[str]]]
) -> dict[str, dict[str, tuple[float, int]]]:
    """Returns (accuracy, items) of each value of each breakdown; an item may have several."""
    mean_M = _checked(correct_MG).mean(1)
    rows = {}
    for mean, groups in zip(mean_M, groups_M, strict=True):
        for key, values in groups.items():
            for value in values:
                rows.setdefault(key, {}).setdefault(value, []).append(mean)
    return {
        key: {v: (float(np.mean(m)), len(m)) for v, m in sorted(found.items())}
        for key, found in rows.items()
    }


def _bootstrap(
    values: Mapping[str, np.ndarray],
    clusters: Clusters,
    seed: int,
    num_resamples: int,
    level: float,
) -> Interval:
    if not values:
        raise ValueError("there is no benchmark to average")
    if not 0 < level < 1 or num_resamples < 1:
        raise ValueError(f"level={level} must be in 0 .. 1, {num_resamples=} positive")
    rng = np.random.default_rng(seed)
    totals = np.zeros(num_resamples)
    for name, x_M in values.items():
        sum_C, size_C = _sums(x_M, clusters.get(name))
        step = max(1, _CHUNK // len(sum_C))
        for start in range(0, num_resamples, step):
            shape = min(step, num_resamples - start), len(sum_C)
            index = rng.integers(len(sum_C), size=shape)
            part = sum_C[index].sum(1) / size_C[index].sum(1)
            totals[start : start + len(part)] += part
    low, high = np.quantile(totals / len(values), [(1 - level) / 2, (1 + level) / 2])
    mean = np.mean([x_M.mean() for x_M in values.values()])
    return Interval(float(mean), float(low), float(high))


def _sums(
    x_M: np.ndarray, cluster_M: Sequence[Hashable] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the sum and the number of items of each cluster, by default of each item."""
    if cluster_M is None:
        return x_M, np.ones(len(x_M))
    if len(cluster_M) != len(x_M):
        raise ValueError(f"{len(cluster_M)} clusters are given for {len(x_M)} items")
    _, cluster_M = np.unique(np.asarray(cluster_M), return_inverse=True)
    return np.bincount(cluster_M, x_M), np.bincount(cluster_M)


def _checked(correct_MG: np.ndarray) -> np.ndarray:
    correct_MG = np.asarray(correct_MG, np.float64)
    if correct_MG.ndim != 2 or 0 in correct_MG.shape:
        raise ValueError(f"correct has shape {correct_MG.shape}, not [items, answers]")
    if not np.isin(correct_MG, (0, 1)).all():
        raise ValueError("correct must be 0 or 1 for every answer")
    return correct_MG
