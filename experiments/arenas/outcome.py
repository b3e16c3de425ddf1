"""One run of a sweep in numbers, which a comparison puts together."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from experiments.arenas import cost
from experiments.arenas.cost import LATE
from vade_jax.report import curves
from vade_jax.report.curves import Curve, Records


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run in numbers; NaN where nothing was measured."""

    validations: Curve  # accuracy, the mean over the validation sets
    last: float
    late: float  # mean of the last `LATE` validations: less noisy than the last one
    best: float
    effective_ratio: float  # mean over the steps, see `curves.effective`
    varied: float  # share of all rolled-out groups whose rewards differ, mean over the steps
    overshoot: float  # the predicted effective ratio less the observed one, mean over the steps
    rollouts: float
    forgotten: float  # share of known validation questions, mean of the last `LATE` values
    hopeless: float  # share of rollouts on prompts that cannot be answered correctly
    costs: Mapping[str, float]  # by metric of `cost.COSTS`

    def rollouts_to_reach(self, target: float) -> float:
        """Returns the rollouts spent by the first validation of at least `target`; NaN if there is none.

        The validation before the first step is none: a policy that RL makes worse has reached nothing.
        """
        rollouts, scores = self.validations.against("rollouts")
        # The tolerance lets a mean reach an equal mean that was rounded differently.
        reached = np.flatnonzero((scores >= target - 1e-9) & (self.validations.steps > 0))
        return float(rollouts[reached[0]]) if reached.size else np.nan


def of_run(records: Records, hopeless: float) -> Outcome:
    """Returns one run in numbers; `hopeless` is what its records do not tell."""
    validations = curves.validation(records)
    scores = validations.values
    ratio = curves.effective(records).values
    varied = curves.named(records, curves.EFFECTIVE).values
    predicted, observed = curves.predicted_and_observed(records)
    total = curves.rollouts(records).values
    forgotten = curves.forgotten(records).values
    return Outcome(
        validations=validations,
        last=scores[-1] if scores.size else np.nan,
        late=cost.late(validations),
        best=max(scores[validations.steps > 0], default=np.nan),
        effective_ratio=float(np.mean(ratio)) if ratio.size else np.nan,
        varied=float(np.mean(varied)) if varied.size else np.nan,
        overshoot=-curves.forecast_error(predicted, observed)[1] if predicted.size else np.nan,
        rollouts=total[-1] if total.size else np.nan,
        forgotten=float(np.mean(forgotten[-LATE:])) if forgotten.size else np.nan,
        hopeless=hopeless,
        costs=cost.of_run(records),
    )
