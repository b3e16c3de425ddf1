"""Every arm as a point with its interval: where a sweep ended, and how far from the baseline."""

import os
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from vade_jax.report import plotting
from vade_jax.report.comparison import Comparison, Row
from vade_jax.report.intervals import Mean
from vade_jax.report.outcome import LATE
from vade_jax.report.plotting import FAINT, Look

PathLike = str | os.PathLike[str]

FOOTNOTE = (
    "point: mean over seeds;  bar: 95 % interval (Student's t), from three seeds on;  small: single seeds;  accuracy: mean "
    f"of the last {LATE} validations;  difference: seed by seed"
)

SHOWN = ("late", "effective_ratio", "hopeless")  # names of comparison.COLUMNS


def draw(compared: Comparison, directory: PathLike) -> pathlib.Path:
    """Draws arms.png: a row for each data/loss, the best arm on top (the paper's Table 2).

    Columns: accuracy, its difference to the baseline, effective ratio, share on hopeless prompts.
    """
    looks = plotting.looks(arm for rows in compared.groups.values() for arm in rows)
    tallest = max(len(rows) for rows in compared.groups.values())
    height = (0.27 * tallest + 1.2) * len(compared.groups) + 0.4
    pyplot = plotting.pyplot()
    with pyplot.rc_context(plotting.STYLE):
        figure, axes = pyplot.subplots(
            len(compared.groups),
            4,
            figsize=(13, max(height, 3)),
            layout="constrained",
            squeeze=False,
            sharey="row",
        )
        for panels, (name, rows) in zip(axes, compared.groups.items(), strict=True):
            _row(panels, name, rows, looks, compared.baseline)
        figure.supxlabel(FOOTNOTE, fontsize=9, color=FAINT, x=0.01, ha="left")
        return plotting.save(figure, pathlib.Path(directory) / "arms.png")


def _row(panels, name, rows: Mapping[str, Row], looks, baseline):
    ordered = sorted(rows, key=lambda arm: rows[arm].means["late"].mean)
    score, difference, ratio, hopeless = panels
    for place, arm in enumerate(ordered):
        row, look = rows[arm], looks[arm]
        for panel, of in zip((score, ratio, hopeless), SHOWN, strict=True):
            _point(panel, place, row.means[of], row.values[of], look)
        if arm != baseline:
            _point(difference, place, row.difference, row.differences, look)
    difference.axvline(0, color=FAINT, linewidth=1)
    score.set_yticks(range(len(ordered)), ordered)
    score.set_ylim(-0.6, len(ordered) - 0.4)
    titles = ("Accuracy", f"Difference to {baseline}", "Effective ratio")
    for panel, title in zip(
        panels, (*titles, "Share on hopeless prompts"), strict=True
    ):
        panel.set_title(f"{name}\n{title}", linespacing=1.35)
    for panel in (ratio, hopeless):
        panel.set_xlim(left=0)
    _embolden(score, ordered, looks)


def _point(panel: Any, place: int, mean: Mean, values: Any, look: Look) -> None:
    if not mean.count:
        return
    half = mean.half if mean.count > 2 else 0  # that of two seeds hides all others
    size = {"markersize": 8 if look.bold else 6, "capsize": 0}
    width = {"elinewidth": 2.2 if look.bold else 1.4}
    panel.errorbar(
        mean.mean, place, xerr=half, fmt="o", color=look.color, **size, **width
    )
    if mean.count == 1:
        return
    dots = {"s": 9, "color": look.color, "alpha": 0.55, "linewidths": 0}
    panel.scatter(values, np.full(len(values), place - 0.24), **dots)


def _embolden(panel, ordered, looks):
    for label, arm in zip(panel.get_yticklabels(), ordered, strict=True):
        label.set_fontweight("bold" if looks[arm].bold else "normal")
