"""One run in numbers, for the top of its page, the table at its end and the tables of a sweep."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from vade_jax.report import curves
from vade_jax.report.curves import Curve, Records


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a run learned and what it cost; NaN or an empty curve where nothing was measured."""

    validations: Curve  # accuracy, the mean over the validation sets
    effective: Curve  # see `curves.effective`
    forgotten: Curve  # the share of known validation questions
    forgotten_kinds: Mapping[str, Curve]  # the same by family; "": of all, if there are no families
    gap: float  # how far a forecast of the effective ratio is off: the mean over the steps
    bias: float  # observed minus forecast, mean over the steps
    rollouts: float
    tokens: float

    @property
    def last(self) -> float:
        """The last validation."""
        return float(self.validations.values[-1]) if self.validations.values.size else np.nan

    @property
    def effective_ratio(self) -> float:
        """The mean over the steps."""
        return float(np.mean(self.effective.values)) if self.effective.values.size else np.nan


def of_run(records: Records) -> Outcome:
    """Returns the numbers of a run from its records."""
    predicted, observed = curves.predicted_and_observed(records)
    gap, bias = curves.forecast_error(predicted, observed) if predicted.size else (np.nan, np.nan)
    rollouts, tokens = (
        curves.named(records, name).values for name in (curves.ROLLOUTS, curves.TOKENS)
    )
    return Outcome(
        validations=curves.validation(records),
        effective=curves.effective(records),
        forgotten=curves.forgotten(records),
        forgotten_kinds={
            family: curves.forgotten(records, family)
            for family in curves.forgotten_families(records) or [""]
        },
        gap=gap,
        bias=bias,
        rollouts=float(rollouts[-1]) if rollouts.size else np.nan,
        tokens=float(tokens[-1]) if tokens.size else np.nan,
    )
