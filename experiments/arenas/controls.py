"""The controls of an arena: whether a sweep can tell selectors apart at all.

A comparison of selectors means something only in an arena where better selection can show. Five controls
test that before any selector is looked at:

    dose      three times the answers a step beat the baseline, at equal steps
    oracle    a selector that is told the current pass rate of every kind of prompt beats the baseline, at
              equal answers to train on: the passes that measure those rates are free
    headroom  most of the baseline's groups teach nothing, and its validation still climbs at the end
    error     the sampling error of a validation is small compared with the differences of interest
    stability runs of the same seeds, with only the rounding changed, end similarly, and hardly any run of
              the baseline unlearns a kind

The first three are means over at least eight seeds, and their 95 % intervals must not contain 0: of the
differences between runs with the same seed (dose, oracle), and of the baseline's rise (headroom). The
error is the largest over the baseline's seeds. Stability needs 24 pairs.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.arenas import cost, seeds
from experiments.arenas.comparison import Arm
from experiments.arenas.records import Recorded
from vade_jax import tables
from vade_jax.report import curves

ARMS = DOSE, ORACLE, STABILITY = "dose", "oracle", "stability"
LEAST_GAIN = 0.03  # in validation accuracy, of dose and oracle over the baseline
MOST_EFFECTIVE = 0.45  # the baseline's effective ratio must be below
MOST_ERROR = 0.005  # the sampling error of its last validations must be below
LEAST_SEEDS = 8
MOST_SPREAD = 0.02  # standard deviation of a run's accuracy due to rounding alone
MOST_UNLEARNED, LEAST_PAIRS = 1, 24  # baseline runs that may unlearn a kind, out of so many
LAST_PART = 1 / 3  # of the steps: the last ones, in which validation has to climb


@dataclasses.dataclass(frozen=True)
class Control:
    """One requirement of an arena, and whether it is met."""

    name: str
    asked: str
    found: str
    passed: bool


def check(arms: Mapping[str, Arm], baseline: str, runs: Sequence[Recorded]) -> list[Control]:
    """Returns the controls of one group of a sweep; `runs` are the baseline's.

    A control whose arm did not run is not passed.
    """
    base, runs = arms[baseline], sorted(runs, key=lambda run: run.seed)
    climbs = seeds.mean([climb(run.records) for run in runs])
    ratio = base.means["effective_ratio"]
    errors = [
        sampling_error(run.config, accuracy, len(cost.final(curves.validation(run.records))))
        for run, accuracy in zip(runs, base.values["late"], strict=True)
    ]
    error = float(np.max(errors))  # NaN if any of them is
    enough = len(base.seeds) >= LEAST_SEEDS
    return [
        *(_gain(name, baseline, arms.get(name)) for name in (DOSE, ORACLE)),
        Control(
            "headroom",
            f"effective ratio of {baseline} < {MOST_EFFECTIVE}; its validation rises in the last third "
            f"of the steps, the interval excludes 0, {LEAST_SEEDS} seeds or more",
            f"{ratio.text('{:.2f}')}, {climbs.text(sign=True)} ({climbs.count} seeds)",
            enough and ratio.mean < MOST_EFFECTIVE and climbs.mean - climbs.half > 0,
        ),
        Control(
            "error",
            f"sampling error of the mean of {baseline}'s last {cost.LATE} validations < {MOST_ERROR} in every seed",
            "unknown: give data.num_validation" if math.isnan(error) else f"{error:.4f}",
            error < MOST_ERROR,
        ),
        _stability(baseline, base, arms.get(STABILITY)),
    ]


def _stability(baseline: str, base: Arm, again: Arm | None) -> Control:
    asked = (
        f"{baseline} again with other rounding: at most {MOST_UNLEARNED} of {LEAST_PAIRS} runs unlearned a "
        f"kind, spread < {MOST_SPREAD}, {LEAST_PAIRS} pairs or more"
    )
    if again is None:
        return Control(STABILITY, asked, "not run", passed=False)
    # Both are runs of the baseline.
    values = np.array([*base.values["unlearned"], *again.values["unlearned"]])
    change = np.array(again.differences)
    # A pair's difference has the variance of two runs.
    spread = math.sqrt(np.mean(change**2) / 2)
    found = f"unlearned {seeds.share(values)}, spread {spread:.3f} ({change.size} pairs)"
    is_rare = np.mean(values) <= MOST_UNLEARNED / LEAST_PAIRS  # false if any is NaN
    enough = change.size >= LEAST_PAIRS
    return Control(STABILITY, asked, found, bool(enough and is_rare and spread < MOST_SPREAD))


def _gain(name: str, baseline: str, arm: Arm | None) -> Control:
    asked = (
        f"{name} - {baseline} >= {LEAST_GAIN}, its interval excludes 0, {LEAST_SEEDS} pairs or more"
    )
    if arm is None:
        return Control(name, asked, "did not run", passed=False)
    gain = arm.means["difference"]
    is_clear = gain.mean >= LEAST_GAIN and gain.mean - gain.half > 0
    found = f"{gain.text(sign=True)} ({gain.count} pairs)"
    return Control(name, asked, found, gain.count >= LEAST_SEEDS and is_clear)


def climb(records: curves.Records) -> float:
    """Returns the rise of validation over the last third of a run, from a straight-line fit.

    NaN if fewer than two validations fall into it.
    """
    score = curves.validation(records)
    if not score.steps.size:
        return math.nan
    # The tolerance is for rounding: step 40 is in the last third of 60.
    late = score.steps >= score.steps[-1] * (1 - LAST_PART) - 1e-6
    if late.sum() < 2:
        return math.nan
    slope, _ = np.polyfit(score.steps[late], score.values[late], 1)
    return float(slope * score.steps[-1] * LAST_PART)


def sampling_error(config: Mapping[str, Any], accuracy: float, num_validations: int) -> float:
    """Returns the standard error of the mean of a run's last validations, as if answers were independent.

    It covers the sampling of answers, and overestimates it, because answers to one question are alike. It
    leaves out the choice of questions: they are the same in every arm, so they cancel in a difference.

    NaN if `num_validation` is 0 (all items of a file): the config then does not give their number.
    """
    num_answers = num_validations * config["data"]["num_validation"] * config["eval"]["num_samples"]
    if num_answers == 0:
        return math.nan
    return math.sqrt(accuracy * (1 - accuracy) / num_answers)


def table(controls: Sequence[Control]) -> tuple[list[str], list[list[str]]]:
    """Returns heading and rows."""
    rows = [[x.name, x.asked, x.found, "yes" if x.passed else "no"] for x in controls]
    return ["control", "asked", "found", "passed"], rows


def markdown(controls: Mapping[str, Sequence[Control]]) -> str:
    """Returns a table for each group of a sweep."""
    texts = [
        f"## {name}: controls\n\n{tables.markdown(*table(x))}\n" for name, x in controls.items()
    ]
    return "\n".join(texts)
