"""Numbers over seeds: a mean and a share, with their intervals."""

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

LEAST = 8  # values that the bootstrap needs
RESAMPLES = 2000


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean, and half the width of its interval: NaN for fewer than two values."""

    mean: float
    half: float
    count: int

    def text(self, form: str = "{:.3f}", *, sign: bool = False, of: int = 0) -> str:
        """Returns mean ± half, or the mean alone without an interval, and the count if it is below `of`."""
        if not self.count:
            return "-"
        mean = form.format(self.mean)
        mean = f"+{mean}" if sign and self.mean >= 0 else mean
        text = f"{mean} ± {form.format(self.half)}" if self.half > 0 else mean
        return f"{text} ({self.count} of {of})" if self.count < of else text


def mean(values: Sequence[float] | np.ndarray) -> Mean:
    """Returns the mean of the finite values, with its 95 % interval.

    With `LEAST` values or more it is a symmetric, studentised bootstrap (Hall 1988): it measures how far the
    mean of a resample is from that of `values`, in the resample's own standard errors. 95 % are closer than
    the limit. If a few values are far below the rest, as after unlearning, it covers the true mean in 93 to
    97 % of simulated cases (percentile, BCa: 86 to 93 %). With fewer values it is Student's t.
    """
    from scipy import special  # slow to import, and only tables need it

    x = np.sort([value for value in values if np.isfinite(value)])
    if x.size < 2:
        return Mean(float(x[0]) if x.size else np.nan, np.nan, x.size)
    error, times = x.std(ddof=1) / np.sqrt(x.size), special.stdtrit(x.size - 1, 0.975)
    if x.size >= LEAST and error > 0:
        again = x[_resamples(x.size)]
        # A resample of nearly equal values would have nearly no error.
        errors = np.maximum(again.std(1, ddof=1) / np.sqrt(x.size), error / 3)
        times = np.quantile(np.abs(again.mean(1) - x.mean()) / errors, 0.95)
    return Mean(float(x.mean()), float(error * times), x.size)


@functools.cache
def _resamples(count: int) -> np.ndarray:
    return np.random.default_rng(0).integers(count, size=(RESAMPLES, count))


def share(values: Sequence[float] | np.ndarray) -> str:
    """Returns how many of the finite values are 1 and not 0, with Wilson's 95 % interval of their share."""
    from scipy import stats

    x = [value for value in values if np.isfinite(value)]
    if not x:
        return "-"
    low, high = stats.binomtest(int(sum(x)), len(x)).proportion_ci(method="wilson")
    return f"{sum(x):.0f}/{len(x)} ({100 * low:.0f}–{100 * high:.0f} %)"
