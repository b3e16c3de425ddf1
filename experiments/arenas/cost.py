"""What the arms of a sweep cost, and how they compare at equal cost.

A selector that prefers hard prompts gets longer answers, and the longest of them delays its step. So arms are
compared at equal answers, tokens and seconds. Of two runs with the same seed, the more expensive one is
measured where it had spent as much as the cheaper one at its last validations.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vade_jax.report import curves
from vade_jax.report.curves import Curve, Records

LATE = 3  # the last validations of a run; their mean is its accuracy
# By axis of `curves.AXES`: what two runs have spent equally; "steps": none, because runs are complete.
EQUAL = {name: f"at equal {what}" for name, what in curves.AXES.items()} | {
    "steps": "of entire runs"
}
_last = operator.itemgetter(-1)
# The costs of a run: (metric, heading, format, how its steps are combined, unit).
COSTS: tuple[tuple[str, str, str, Callable[[np.ndarray], float], float], ...] = (
    (curves.ROLLOUTS, "answers", "{:,.0f}", _last, 1),
    (curves.TOKENS, "answer tokens", "{:,.0f}", _last, 1),
    ("response_length/p50", "median length", "{:.0f}", np.mean, 1),
    ("response_length/p95", "95 % length", "{:.0f}", np.mean, 1),
    ("response_length/p99", "99 % length", "{:.0f}", np.mean, 1),
    ("timing_s/gen", "generating, min", "{:.1f}", np.sum, 60),
    ("timing_s/gen_tail", "tail, min", "{:.1f}", np.sum, 60),
    ("timing_s/update_actor", "learning, min", "{:.1f}", np.sum, 60),
    (curves.SECONDS, "all steps, min", "{:.1f}", np.sum, 60),
    ("perf/device_seconds", "device-hours", "{:.2f}", np.sum, 3600),
)
NOTES = (
    "Length: tokens of an answer, mean over the steps of each step's percentile. Tail: from the median group "
    "to the last one. All steps: with their validations, while other runs shared the cores. Device-hours: of "
    "all devices, waiting included.",
    "At equal answers, tokens or seconds: difference to {baseline} as above, but the more expensive run of each "
    "pair is interpolated between its validations where it had spent as much as the cheaper one at its last "
    f"{LATE}.",
)


def of_run(records: Records) -> dict[str, float]:
    """Returns the costs of a run by metric of `COSTS`; NaN if not recorded."""
    costs = {}
    for name, _, _, together, unit in COSTS:
        values = curves.named(records, name).values
        costs[name] = float(together(values)) / unit if values.size else np.nan
    return costs


def late(curve: Curve, most: int = LATE) -> float:
    """Returns the mean of the last `most` validations, less noisy than the last one; NaN without any.

    The validation before the first step does not count; DAPO's short runs may have only two others.
    """
    scores = curve.values[final(curve, most)]
    return float(np.mean(scores)) if scores.size else np.nan


def final(curve: Curve, most: int = LATE) -> np.ndarray:
    """Returns the indices of the validations that `late` averages."""
    return np.flatnonzero(curve.steps > 0)[-most:]


def difference(one: Curve, other: Curve, axis: str) -> float:
    """Returns by how much `late` of one run's validations is above that of another's at equal `axis`.

    The more expensive run is interpolated linearly at what the cheaper one had spent at its last validations.
    Cutting it there would lose an entire validation for one second too many.

    At equal "steps" both count completely. If one has fewer validations than `LATE`, like DAPO's runs, the
    same number is taken from both, so that neither mean has an additional early one.

    NaN if the records lack that axis, or the more expensive run has no validation so early.
    """
    if axis == "steps":
        most = min(LATE, *(len(final(curve)) for curve in (one, other)))
        return late(one, most) - late(other, most) if most else np.nan
    if not all(axis in curve.spent and curve.steps.size for curve in (one, other)):
        return np.nan
    cheaper, dearer = sorted((one, other), key=lambda curve: curve.spent[axis][-1])
    at = cheaper.spent[axis][final(cheaper)]
    read = np.interp(at, *dearer.against(axis), left=np.nan)
    gap = late(cheaper) - (float(np.mean(read)) if at.size else np.nan)
    return gap if cheaper is one else -gap


def table(arms: Mapping[str, Any], baseline: str) -> tuple[list[str], list[list[str]]]:
    """Returns heading and rows of `comparison.Arm`s by label, with the quantities recorded for any of them.

    The baseline's cells of differences stay empty.
    """
    costs = [x for x in COSTS if any(arm.costs[x[0]].count for arm in arms.values())]
    axes = [x for x in EQUAL if x != "steps" and any(arm.equal[x].count for arm in arms.values())]
    rows = []
    for label, arm in arms.items():
        row = [label, *(arm.costs[name].text(form) for name, _, form, *_ in costs)]
        row += ["" if label == baseline else arm.equal[axis].text(sign=True) for axis in axes]
        rows.append(row)
    head = ["arm", *(heading for _, heading, *_ in costs), *(EQUAL[axis] for axis in axes)]
    return head, rows
