"""Compares arms (selectors) across arenas: their difference to the baseline in each, and its mean over all.

The seeds of one arena resolve differences of about 0.03. A selector that helps in general helps in most
arenas, and the mean over arenas of each seed's difference has a narrower interval than any one arena.
"""

from collections.abc import Mapping

import numpy as np

from experiments.arenas import cost, plotting, seeds
from experiments.arenas.comparison import Arm, Comparison
from experiments.arenas.plotting import FAINT
from experiments.arenas.seeds import Mean
from vade_jax.types import PathLike

MEAN = "mean of all"
FIGURE_NOTE = (
    "difference to {baseline}, seed by seed, of the mean of the last {late} validations;  bar: 95 % interval;  "
    "small: single seeds"
)


def seeds_mean(compared: Comparison, label: str) -> Mean:
    """Returns an arm's difference to the baseline: averaged over groups for each seed, then over seeds.

    Only seeds count that the arm and the baseline have in every group; without any, `count` is 0.
    """
    return seeds.mean([*by_seed(compared, label).values()])


def by_seed(compared: Comparison, label: str) -> dict[int, float]:
    """Returns the mean of an arm's differences over the groups, for each seed that is in every group."""
    by_group = [_differences(arms, label, compared.baseline) for arms in compared.groups.values()]
    shared = set.intersection(*map(set, by_group))
    return {seed: sum(of[seed] for of in by_group) / len(by_group) for seed in sorted(shared)}


def _differences(arms: Mapping[str, Arm], label: str, baseline: str) -> dict[int, float]:
    """Returns an arm's differences to the baseline by seed; {} if the group lacks one of the two."""
    if label not in arms or baseline not in arms:
        return {}
    shared = [seed for seed in arms[label].seeds if seed in arms[baseline].seeds]
    return dict(zip(shared, arms[label].differences, strict=True))


def draw(compared: Comparison, path: PathLike) -> None:
    """Draws a panel for each arm except the baseline: a row for each group, and one for their mean."""
    baseline = compared.baseline
    labels = dict.fromkeys(x for arms in compared.groups.values() for x in arms if x != baseline)
    names = [*compared.groups, MEAN]
    colors = plotting.colors(labels)
    size = (2.1 * len(labels) + 2.4, 0.34 * len(names) + 1.3)
    note = FIGURE_NOTE.format(baseline=baseline, late=cost.LATE)
    shared = {"sharex": True, "sharey": True}
    with plotting.panels(path, len(labels), size=size, note=note, **shared) as (_, row):
        for axes, label in zip(row, labels, strict=True):
            rows = [_differences(arms, label, baseline) for arms in compared.groups.values()]
            for place, of_seeds in enumerate([*rows, by_seed(compared, label)]):
                values, is_mean = list(of_seeds.values()), place == len(rows)
                mean = seeds.mean(values)
                if not mean.count:
                    continue
                half = mean.half if mean.count > 2 else 0  # that of two seeds is too wide to draw
                style = {"fmt": "D" if is_mean else "o", "elinewidth": 2.4 if is_mean else 1.4}
                axes.errorbar(mean.mean, place, xerr=half, color=colors[label], **style)
                dots = {"s": 7, "color": colors[label], "alpha": 0.45, "linewidths": 0}
                axes.scatter(values, np.full(len(values), place + 0.28), **dots)
            axes.axvline(0, color=FAINT, linewidth=1)
            axes.set_title(label)
        row[0].set_yticks(range(len(names)), names)
        row[0].set_ylim(len(names) - 0.4, -0.6)
