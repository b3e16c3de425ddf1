"""Compares arms (selectors) across arenas: their difference to the baseline in each, and its mean over all.

The seeds of one arena resolve differences of about 0.03. A selector that helps in general helps in most
arenas, and the mean over arenas of each seed's difference has a narrower interval than any one arena.
"""

import numpy as np

from experiments.arenas import cost, plotting
from experiments.arenas.comparison import Comparison
from experiments.arenas.plotting import FAINT
from vade_jax import tables
from vade_jax.report import curves
from vade_jax.report.curves import Mean
from vade_jax.types import PathLike

NOTE = (
    "{baseline}: mean of the last {late} validations; the others: the difference to it{at}, seed by seed, ± half of the 95 % interval. "
    "Mean of all: averaged over the columns for each seed that is in all columns, then over these seeds."
)
MEAN = "mean of all"
FIGURE_NOTE = (
    "difference to {baseline}{at}, seed by seed, of the mean of the last {late} validations;  bar: 95 % interval (Student's t);  "
    "small: single seeds"
)


def seeds_mean(compared: Comparison, label: str) -> Mean:
    """Returns an arm's difference to the baseline: averaged over groups for each seed, then over seeds.

    Only seeds count that the arm and the baseline have in every group; without any, `count` is 0.
    """
    return curves.mean([*by_seed(compared, label).values()])


def by_seed(compared: Comparison, label: str) -> dict[int, float]:
    """Returns the mean of an arm's differences over the groups, for each seed that is in every group."""
    by_group = [_differences(arms, label, compared.baseline) for arms in compared.groups.values()]
    shared = set.intersection(*map(set, by_group))
    return {seed: sum(of[seed] for of in by_group) / len(by_group) for seed in sorted(shared)}


def _differences(arms, label: str, baseline: str) -> dict[int, float]:
    """Returns an arm's differences to the baseline by seed; {} if the group lacks one of the two."""
    if label not in arms or baseline not in arms:
        return {}
    seeds = [seed for seed in arms[label].seeds if seed in arms[baseline].seeds]
    return dict(zip(seeds, arms[label].differences, strict=True))


def markdown(compared: Comparison) -> str:
    """Returns a row for each arm and a column for each group; the cell of a missing arm is empty."""
    labels = dict.fromkeys(label for arms in compared.groups.values() for label in arms)
    lines = []
    for label in labels:
        line = [label]
        for arms in compared.groups.values():
            arm, of_itself = arms.get(label), label == compared.baseline
            mean = arm and (arm.means["late"] if of_itself else arm.difference)
            line.append(mean.text(sign=not of_itself) if mean else "")
        mean = seeds_mean(compared, label)
        is_known = mean.count and label != compared.baseline
        line.append(f"{mean.text(sign=True)} ({mean.count})" if is_known else "")
        lines.append(line)
    head = ["arm", *compared.groups, f"{MEAN} (seeds)"]
    note = NOTE.format(baseline=compared.baseline, late=cost.LATE, at=compared.at_equal)
    return f"{tables.markdown(head, lines)}\n\n{note}"


def draw(compared: Comparison, path: PathLike) -> None:
    """Draws a panel for each arm except the baseline: a row for each group, and one for their mean."""
    labels = dict.fromkeys(x for arms in compared.groups.values() for x in arms)
    labels = [label for label in labels if label != compared.baseline]
    names = [*compared.groups, MEAN]
    looks = plotting.looks(labels)
    size = (2.1 * len(labels) + 2.4, 0.34 * len(names) + 1.3)
    note = FIGURE_NOTE.format(baseline=compared.baseline, late=cost.LATE, at=compared.at_equal)
    shared = {"sharex": True, "sharey": True}
    with plotting.panels(path, 1, len(labels), size=size, note=note, **shared) as (_, grid):
        for axes, label in zip(grid[0], labels, strict=True):
            rows = [
                list(_differences(arms, label, compared.baseline).values())
                for arms in compared.groups.values()
            ]
            for place, values in enumerate([*rows, [*by_seed(compared, label).values()]]):
                is_mean, mean = place == len(rows), curves.mean(values)
                if not mean.count:
                    continue
                half = mean.half if mean.count > 2 else 0  # that of two seeds is too wide to draw
                style = {"fmt": "D" if is_mean else "o", "elinewidth": 2.4 if is_mean else 1.4}
                axes.errorbar(mean.mean, place, xerr=half, color=looks[label].color, **style)
                dots = {"s": 7, "color": looks[label].color, "alpha": 0.45, "linewidths": 0}
                axes.scatter(values, np.full(len(values), place + 0.28), **dots)
            axes.axvline(0, color=FAINT, linewidth=1)
            axes.set_title(label)
        grid[0][0].set_yticks(range(len(names)), names)
        grid[0][0].set_ylim(len(names) - 0.4, -0.6)
