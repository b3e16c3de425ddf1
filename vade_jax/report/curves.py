"""The curves that metrics.jsonl holds: averaged and smoothed, not drawn."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np

from vade_jax.store import metrics

PathLike = str | os.PathLike[str]

ACCURACY = "critic/score/mean"  # correctness of the training answers
EFFECTIVE = "vade/effective_ratio"
EFFECTIVE_CORRECT = "vade/effective_ratio_correct"
PREDICTED = "vade/predicted_effective_ratio"
GRADIENT_NORM = "actor/grad_norm"


@dataclasses.dataclass(frozen=True)
class Curve:
    """One quantity of one seed; NaN and infinities are left out."""

    steps: np.ndarray
    values: np.ndarray
    rollouts: np.ndarray  # spent up to each step
    smooths: bool = True  # noisy enough for a moving average

    def smooth(self) -> "Curve":
        """Returns what the bold line shows."""
        values = moving_average(self.values) if self.smooths else self.values
        return dataclasses.replace(self, values=values)

    def against(self, axis: str) -> tuple[np.ndarray, np.ndarray]:
        return getattr(self, axis), self.values


def read_runs(
    runs: Mapping[str, Sequence[PathLike]],
) -> dict[str, list[list[metrics.Record]]]:
    """Returns the records of every seed, by label, of run directories by label."""
    if not runs or not all(len(dirs) for dirs in runs.values()):
        raise ValueError(
            f"runs={dict(runs)}: give at least one run directory per label"
        )
    if any(isinstance(dirs, str | os.PathLike) for dirs in runs.values()):
        raise ValueError(f"runs={dict(runs)}: give a list of run directories per label")
    return {label: [metrics.read(w) for w in dirs] for label, dirs in runs.items()}


# ------------------------------------------------------------------------------ of a run
def named(
    records: Sequence[metrics.Record], name: str, *, smooths: bool = True
) -> Curve:
    """Returns the curve of a metric."""
    return _make(records, *metrics.column(records, name), smooths)


def validation(records: Sequence[metrics.Record]) -> Curve:
    """Returns the mean accuracy over the validation sets."""
    return _make(records, *metrics.validation(records), smooths=False)


def rollouts(records: Sequence[metrics.Record]) -> Curve:
    """Returns the rollouts so far."""
    return named(records, metrics.ROLLOUTS, smooths=False)


def effective_rollouts(records: Sequence[metrics.Record]) -> Curve:
    """Returns the rollouts so far whose group had a reward that was not constant."""
    total, ratio = rollouts(records), named(records, EFFECTIVE)
    _, at_total, at_ratio = np.intersect1d(
        total.steps, ratio.steps, return_indices=True
    )
    spent = np.diff(total.values, prepend=0.0)[at_total]
    useful = np.cumsum(spent * ratio.values[at_ratio])
    return Curve(total.steps[at_total], useful, total.values[at_total], False)


def predicted_and_observed(
    records: Sequence[metrics.Record],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the two effective ratios of the steps that have both.

    The posterior counts correctness, so correctness is what it is held against; the ratio of
    the training reward stands in where a run has no other.
    """
    seen = (
        EFFECTIVE_CORRECT if any(EFFECTIVE_CORRECT in r for r in records) else EFFECTIVE
    )
    both = [record for record in records if PREDICTED in record and seen in record]
    pair = np.stack([metrics.column(both, name)[1] for name in (PREDICTED, seen)])
    predicted, observed = pair[:, np.all(np.isfinite(pair), 0)]
    return predicted, observed


def _make(
    records: Sequence[metrics.Record],
    steps: np.ndarray,
    values: np.ndarray,
    smooths: bool,
) -> Curve:
    finite = np.isfinite(values)
    steps, values = steps[finite], values[finite]
    return Curve(steps, values, metrics.rollouts_at(records, steps), smooths)


# ------------------------------------------------------------------------------ fewer points
def average(
    series: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean of curves over the range they share, on the union of their points."""
    x, mean, _ = band(series)
    return x, mean


def band(
    series: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns `average` and the standard error of the mean, 0 for a single curve."""
    series = [(x, y) for x, y in series if len(x)]
    if not series:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    first, last = max(x[0] for x, _ in series), min(x[-1] for x, _ in series)
    grid = np.unique(np.concatenate([x for x, _ in series]))
    grid = grid[(grid >= first) & (grid <= last)]
    y = np.stack([np.interp(grid, *one) for one in series])
    error = (
        np.std(y, 0, ddof=1) / np.sqrt(len(y)) if len(y) > 1 else np.zeros(len(grid))
    )
    return grid, y.mean(0), error


def window(length: int) -> int:
    """Returns the odd width of the moving average: about a twentieth of the curve."""
    return 2 * (length // 40) + 1


def moving_average(values: np.ndarray) -> np.ndarray:
    """Returns the centred mean over `window` points, fewer at the two ends."""
    half = window(len(values)) // 2
    total = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    start = np.maximum(place - half, 0)
    stop = np.minimum(place + half + 1, len(values))
    return (total[stop] - total[start]) / (stop - start)


def binned(
    x: np.ndarray, y: np.ndarray, count: int = 8
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the means of x and y in at most `count` bins of x with equally many points."""
    bins = np.array_split(np.argsort(x), max(1, min(count, len(x) // 5)))
    return np.array([x[i].mean() for i in bins]), np.array([y[i].mean() for i in bins])
