"""The numbers of metrics.jsonl as curves, their averages over seeds, and intervals of means."""

import dataclasses
import os
from collections.abc import Mapping, Sequence

import numpy as np

from vade_jax.store import metrics

PathLike = str | os.PathLike[str]
Records = Sequence[metrics.Record]

ACCURACY = "critic/score/mean"  # correctness of the training answers
EFFECTIVE = "vade/effective_ratio"
EFFECTIVE_CORRECT = "vade/effective_ratio_correct"
PREDICTED = "vade/predicted_effective_ratio"
GRADIENT_NORM = "actor/grad_norm"


# ------------------------------------------------------------------------------ of one run
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
        """Returns (x, y), x being "steps" or "rollouts"."""
        return getattr(self, axis), self.values


def named(records: Records, name: str, *, smooths: bool = True) -> Curve:
    """Returns the curve of a metric."""
    return _finite(records, *metrics.column(records, name), smooths)


def validation(records: Records) -> Curve:
    """Returns the mean accuracy over the validation sets."""
    return _finite(records, *metrics.validation(records), smooths=False)


def rollouts(records: Records) -> Curve:
    """Returns the rollouts so far."""
    return named(records, metrics.ROLLOUTS, smooths=False)


def effective_rollouts(records: Records) -> Curve:
    """Returns the rollouts so far that were in groups whose rewards differ."""
    total, ratio = rollouts(records), named(records, EFFECTIVE)
    _, at_total, at_ratio = np.intersect1d(total.steps, ratio.steps, return_indices=True)
    spent = np.diff(total.values, prepend=0.0)[at_total]
    useful = np.cumsum(spent * ratio.values[at_ratio])
    return Curve(total.steps[at_total], useful, total.values[at_total], False)


def predicted_and_observed(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Returns the two effective ratios of the steps that have both.

    The posterior counts correct answers, so its forecast is compared with the ratio of groups whose
    correctness differs; that of the training reward stands in where a run has no other.
    """
    has_correct = any(EFFECTIVE_CORRECT in record for record in records)
    observed = EFFECTIVE_CORRECT if has_correct else EFFECTIVE
    both = [r for r in records if PREDICTED in r and observed in r]
    pair = np.stack([metrics.column(both, name)[1] for name in (PREDICTED, observed)])
    return tuple(pair[:, np.all(np.isfinite(pair), 0)])


def forecast_error(predicted: np.ndarray, observed: np.ndarray) -> tuple[float, float]:
    """Returns the mean absolute error of a step's forecast, and the mean of observed - predicted."""
    difference = observed - predicted
    return float(np.mean(np.abs(difference))), float(np.mean(difference))


def quarters(values: np.ndarray) -> tuple[float, float]:
    """Returns the means of the first and of the last quarter of a curve."""
    count = max(1, len(values) // 4)
    return float(values[:count].mean()), float(values[-count:].mean())


def has_spikes(values: np.ndarray) -> bool:
    """Returns whether a linear axis from 0 would press most of the curve to the floor."""
    return bool(len(values) and np.max(values) > 20 * np.median(values) > 0)


def _finite(records: Records, steps: np.ndarray, values: np.ndarray, smooths: bool) -> Curve:
    finite = np.isfinite(values)
    steps, values = steps[finite], values[finite]
    return Curve(steps, values, metrics.rollouts_at(records, steps), smooths)


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


def binned(x: np.ndarray, y: np.ndarray, count: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Returns the means of x and y in at most `count` bins of x with equally many points."""
    bins = np.array_split(np.argsort(x), max(1, min(count, len(x) // 5)))
    return np.array([x[i].mean() for i in bins]), np.array([y[i].mean() for i in bins])


# ------------------------------------------------------------------------------ of many seeds
def read_runs(runs: Mapping[str, Sequence[PathLike]]) -> dict[str, list[Records]]:
    """Returns the records of every seed, by label, of run directories by label."""
    if not runs or not all(len(dirs) for dirs in runs.values()):
        raise ValueError(f"runs={dict(runs)}: give at least one run directory per label")
    if any(isinstance(dirs, str | os.PathLike) for dirs in runs.values()):
        raise ValueError(f"runs={dict(runs)}: give a list of run directories per label")
    return {label: [metrics.read(w) for w in dirs] for label, dirs in runs.items()}


def band(
    series: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (x, mean, standard error of the mean) of curves over the range they share.

    x is the union of their points, between which curves are straight. The error of a single curve
    is 0.
    """
    series = [(x, y) for x, y in series if len(x)]
    if not series:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    first, last = max(x[0] for x, _ in series), min(x[-1] for x, _ in series)
    grid = np.unique(np.concatenate([x for x, _ in series]))
    grid = grid[(grid >= first) & (grid <= last)]
    y = np.stack([np.interp(grid, *one) for one in series])
    spread = np.std(y, 0, ddof=1) if len(y) > 1 else np.zeros(len(grid))
    return grid, y.mean(0), spread / np.sqrt(len(y))


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean and half the width of its interval; of fewer than two values that is NaN."""

    mean: float
    half: float
    count: int

    def text(self, form: str = "{:.3f}", *, sign: bool = False) -> str:
        """Returns mean ± half, the mean alone where there is no interval."""
        if not self.count:
            return "-"
        mean = form.format(self.mean)
        mean = f"+{mean}" if sign and self.mean >= 0 else mean
        return f"{mean} ± {form.format(self.half)}" if self.half > 0 else mean


def mean(values: Sequence[float], level: float = 0.95) -> Mean:
    """Returns the mean of what is finite, with the interval of Student's t.

    The values are taken as independent draws from a normal distribution; of two or three seeds the
    95 % interval is wide (12.7 and 4.3 standard errors to each side).
    """
    from scipy import stats  # slow to import, and only tables need it

    x = np.asarray([value for value in values if np.isfinite(value)], float)
    if x.size < 2:
        return Mean(float(x[0]) if x.size else np.nan, np.nan, x.size)
    half = stats.sem(x) * stats.t.ppf((1 + level) / 2, x.size - 1)
    return Mean(float(x.mean()), float(half), x.size)
