"""Numbers over seeds: a mean with its interval, and the differences of runs that share a seed."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Mean:
    """A mean, and half the width of its interval: NaN for fewer than two values."""

    mean: float
    half: float
    count: int

    def text(self, form: str = "{:.3f}", *, sign: bool = False, of: int = 0) -> str:
        """Returns mean ± half, or only the mean if it has no interval.

        Args:
            form: of both numbers.
            sign: whether a plus is written.
            of: the possible number of values; if there are fewer, brackets say how many.
        """
        if not self.count:
            return "-"
        mean = form.format(self.mean)
        mean = f"+{mean}" if sign and self.mean >= 0 else mean
        text = f"{mean} ± {form.format(self.half)}" if self.half > 0 else mean
        return f"{text} ({self.count} of {of})" if self.count < of else text


def mean(values: Sequence[float] | np.ndarray, level: float = 0.95) -> Mean:
    """Returns the mean of the finite values, with Student's t interval.

    The values are taken as independent draws from a normal distribution. With two or three seeds the
    95 % interval is wide (12.7 and 4.3 standard errors to each side).
    """
    from scipy import special  # slow to import, and only tables need it

    x = np.asarray([value for value in values if np.isfinite(value)], float)
    if x.size < 2:
        return Mean(float(x[0]) if x.size else np.nan, np.nan, x.size)
    half = x.std(ddof=1) / np.sqrt(x.size) * special.stdtrit(x.size - 1, (1 + level) / 2)
    return Mean(float(x.mean()), float(half), x.size)


def differences(one: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """Returns the values of `one` minus those of `other`, for each seed that both have."""
    return [value - other[seed] for seed, value in one.items() if seed in other]
