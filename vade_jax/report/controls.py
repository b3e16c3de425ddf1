"""The controls of an arena: whether a sweep can tell selectors apart at all.

A comparison of selectors says something only where better selection could have shown. Four controls
ask for that, before any selector is looked at:

    dose      three times the answers a step bring more than the baseline has, at equal steps
    oracle    so does a selector that is told the current pass rate of every kind of prompt, at equal
              answers to train on: the passes that measure those rates are free
    headroom  most of the baseline's groups teach nothing, and its validation still climbs at the end
    error     the validations' own sampling error is small beside the differences to be seen

The first three are means over eight seeds or more, with 95 % intervals that must not have 0 in them: of
the differences between runs with the same seed (dose, oracle), and of the baseline's rise (headroom). The
error is the largest of the baseline's seeds.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax import tables
from vade_jax.report import curves
from vade_jax.report.comparison import LATE, Arm
from vade_jax.report.records import Recorded

DOSE, ORACLE = "dose", "oracle"  # the arms
LEAST_GAIN = 0.03  # of dose and oracle over the baseline, in validation accuracy
MOST_EFFECTIVE = 0.45  # of the baseline
MOST_ERROR = 0.005
LEAST_SEEDS = 8
LAST_PART = 1 / 3  # of the steps, in which validation has to climb


@dataclasses.dataclass(frozen=True)
class Control:
    """One question to an arena and what came out."""

    name: str
    asked: str
    found: str
    passed: bool


def check(arms: Mapping[str, Arm], baseline: str, runs: Sequence[Recorded]) -> list[Control]:
    """Returns the controls of one group of a sweep; `runs` are the baseline's."""
    base, runs = arms[baseline], sorted(runs, key=lambda run: run.seed)
    climbs = curves.mean([climb(run.records) for run in runs])
    ratio = base.means["effective_ratio"]
    errors = [
        sampling_error(run.config, accuracy, len(curves.validation(run.records).values[-LATE:]))
        for run, accuracy in zip(runs, base.values["late"], strict=True)
    ]
    error = float(np.max(errors))  # NaN if one is
    enough = len(base.seeds) >= LEAST_SEEDS
    return [
        _gain(DOSE, f"{DOSE} - {baseline}", arms[DOSE].difference),
        _gain(ORACLE, f"{ORACLE} - {baseline}", arms[ORACLE].difference),
        Control(
            "headroom",
            f"effective ratio of {baseline} < {MOST_EFFECTIVE}; its validation rises in the last third "
            f"of the steps, the interval without 0, {LEAST_SEEDS} seeds or more",
            f"{ratio.text('{:.2f}')}, {climbs.text(sign=True)} ({climbs.count} seeds)",
            enough and ratio.mean < MOST_EFFECTIVE and climbs.mean - climbs.half > 0,
        ),
        Control(
            "error",
            f"sampling error of the mean of {baseline}'s last {LATE} validations < {MOST_ERROR} in every seed",
            "unknown: give data.num_validation" if math.isnan(error) else f"{error:.4f}",
            error < MOST_ERROR,
        ),
    ]


def _gain(name: str, what: str, difference: curves.Mean) -> Control:
    return Control(
        name,
        f"{what} >= {LEAST_GAIN}, its interval without 0, {LEAST_SEEDS} pairs or more",
        f"{difference.text(sign=True)} ({difference.count} pairs)",
        difference.count >= LEAST_SEEDS
        and difference.mean >= LEAST_GAIN
        and difference.mean - difference.half > 0,
    )


def climb(records: curves.Records) -> float:
    """Returns by how much validation rises in the last third of a run: a straight line's rise.

    NaN if fewer than two validations are in it.
    """
    score = curves.validation(records)
    if not score.steps.size:
        return math.nan
    late = score.steps >= score.steps[-1] * (1 - LAST_PART) - 1e-6  # 40 is of the last third of 60
    if late.sum() < 2:
        return math.nan
    slope, _ = np.polyfit(score.steps[late], score.values[late], 1)
    return float(slope * score.steps[-1] * LAST_PART)


def sampling_error(config: Mapping[str, Any], accuracy: float, num_validations: int) -> float:
    """Returns the standard error of the mean of a run's last validations, answers taken as independent.

    It is of the answers, and too large for them, as those to one question are alike. Which questions are
    asked is no part of it: they are the same in every arm, so they cancel in a difference.

    NaN where the config does not say how many questions there were: all of a file.
    """
    num_answers = num_validations * config["data"]["num_validation"] * config["eval"]["num_samples"]
    if num_answers == 0:
        return math.nan
    return math.sqrt(accuracy * (1 - accuracy) / num_answers)


def markdown(controls: Mapping[str, Sequence[Control]]) -> str:
    """Returns a table for each group of a sweep."""
    texts = []
    for name, found in controls.items():
        rows = [(x.name, x.asked, x.found, "yes" if x.passed else "no") for x in found]
        table = tables.markdown(["control", "asked", "found", "passed"], rows)
        texts.append(f"## {name}\n\n{table}\n")
    return "\n".join(texts)
