"""What the arms of a sweep cost, and how they compare at equal cost.

Answers are not equal: a selector that prefers hard prompts gets longer answers, and the longest of them holds
up its step. So arms are compared at equal answers, at equal tokens and at equal seconds: of two runs with the
same seed, the dearer one is read where it had spent as much as the cheaper one at its last validations.
"""

from collections.abc import Callable, Mapping

import numpy as np

from vade_jax.report import curves
from vade_jax.report.curves import Curve, Mean, Records

LATE = 3  # the last validations of a run; their mean is its accuracy
# By axis of `curves.AXES`: what two runs have spent alike; "steps" stands for none, as no run is cut there.
EQUAL = {name: f"at equal {what}" for name, what in curves.AXES.items()} | {
    "steps": "of whole runs"
}


def _total(values: np.ndarray) -> float:
    return float(values.sum())


def _last(values: np.ndarray) -> float:
    return float(values[-1])


def _mean(values: np.ndarray) -> float:
    return float(values.mean())


# What a run has cost: (metric, heading, format, how its steps are put together, in which unit).
COSTS: tuple[tuple[str, str, str, Callable[[np.ndarray], float], float], ...] = (
    (curves.ROLLOUTS, "answers", "{:,.0f}", _last, 1),
    (curves.TOKENS, "answer tokens", "{:,.0f}", _last, 1),
    ("response_length/p50", "median length", "{:.0f}", _mean, 1),
    ("response_length/p95", "95 % length", "{:.0f}", _mean, 1),
    ("response_length/p99", "99 % length", "{:.0f}", _mean, 1),
    ("timing_s/gen", "generating, min", "{:.1f}", _total, 60),
    ("timing_s/gen_tail", "tail, min", "{:.1f}", _total, 60),
    ("timing_s/update_actor", "learning, min", "{:.1f}", _total, 60),
    (curves.SECONDS, "all steps, min", "{:.1f}", _total, 60),
    ("perf/device_seconds", "device-hours", "{:.2f}", _total, 3600),
)
NOTES = (
    "Length: tokens of an answer, mean over the steps of each step's percentile. Tail: from the median group "
    "to the last one. All steps: with their validations, while other runs shared the cores. Device-hours: of "
    "all devices, those that wait included.",
    "At equal answers, tokens or seconds: difference to {baseline} as above, but of each pair of runs the "
    "dearer one is read, on straight lines between its validations, where it had spent as much as the cheaper "
    f"one at its last {LATE}.",
)


def of_run(records: Records) -> dict[str, float]:
    """Returns what a run has cost, by metric of `COSTS`; NaN where nothing was recorded."""
    found = {}
    for name, _, _, together, unit in COSTS:
        values = curves.named(records, name).values
        found[name] = together(values) / unit if values.size else np.nan
    return found


def late(curve: Curve, most: int = LATE) -> float:
    """Returns the mean of the last `most` validations, less noisy than the last one; NaN without any.

    The validation before the first step is none of them: DAPO's runs are short and may have only two others.
    """
    scores = curve.values[final(curve, most)]
    return float(np.mean(scores)) if scores.size else np.nan


def final(curve: Curve, most: int = LATE) -> np.ndarray:
    """Returns the indices of the validations that `late` is the mean of."""
    return np.flatnonzero(curve.steps > 0)[-most:]


def difference(one: Curve, other: Curve, axis: str) -> float:
    """Returns by how much `late` of one run is above that of another at equal `axis`, of `curves.AXES`.

    The dearer run is read at what the cheaper one had spent at its last validations, on straight lines
    between its own. To cut it there instead would leave out a whole validation for a second too many.

    At equal steps, if one of the two has fewer validations than `LATE`, as DAPO's runs have, as many are
    taken of both: otherwise one mean would have an early validation that the other has not.

    Args:
        one: its validations.
        other: those of the run that it is compared with.
        axis: what both have spent alike; "steps": both count whole.

    Returns:
        NaN if the records do not have that axis, or the dearer run has no validation as early.
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


def table(
    arms: Mapping[str, Mapping[str, Mean]], equal: Mapping[str, Mapping[str, Mean]], baseline: str
) -> tuple[list[str], list[list[str]]]:
    """Returns heading and rows, an arm a row, of what was recorded of any arm.

    Args:
        arms: by arm, then by metric of `COSTS`: its mean over seeds.
        equal: by arm, then by axis: the mean difference to the baseline.
        baseline: its cells of differences stay empty.
    """
    known = lambda name, of: any(means[name].count for means in of.values())
    costs = [cost for cost in COSTS if known(cost[0], arms)]
    axes = [axis for axis in EQUAL if axis != "steps" and known(axis, equal)]
    rows = []
    for arm, means in arms.items():
        row = [arm, *(means[name].text(form) for name, _, form, *_ in costs)]
        row += ["" if arm == baseline else equal[arm][axis].text(sign=True) for axis in axes]
        rows.append(row)
    head = ["arm", *(heading for _, heading, *_ in costs), *(EQUAL[axis] for axis in axes)]
    return head, rows
