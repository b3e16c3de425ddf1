"""The curves of many runs: arms against each other, mean over seeds with a band."""

import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vade_jax.report import curves, plotting
from vade_jax.report.plotting import FAINT, Look
from vade_jax.store import metrics

PathLike = str | os.PathLike[str]
Records = list[metrics.Record]
Arms = Mapping[str, Sequence[Records]]
Groups = Mapping[str, Mapping[str, Sequence[PathLike]]]

ROW = 3.1  # inches of a row of panels
FOOTNOTE = (
    "mean over seeds, the band of the bold ones is ± one standard error;  effective ratio and gradient "
    "norm: moving average over a twentieth of the run"
)

# A panel: its title, its curve of one run, and what it is drawn against.
Panel = tuple[str, Callable[[Records], curves.Curve], str]
SCORE: Panel = ("Validation accuracy", curves.validation, "steps")
RATIO: Panel = (
    "Effective ratio",
    lambda records: curves.named(records, curves.EFFECTIVE),
    "steps",
)
NORM: Panel = (
    "Gradient norm",
    lambda records: curves.named(records, curves.GRADIENT_NORM),
    "steps",
)
SCORE_OF_ROLLOUTS: Panel = ("Validation accuracy", curves.validation, "rollouts")
ROLLOUTS: Panel = ("Rollouts so far", curves.rollouts, "steps")

FIGURES = {  # file: a row of panels for each data/loss
    "effective_ratio.png": (RATIO,),  # the paper's Figure 1
    "learning.png": (SCORE, RATIO, NORM),  # Figures 3, 5, 6, 7
    "rollouts.png": (SCORE_OF_ROLLOUTS, ROLLOUTS),  # Figures 4, 8
}


def draw(groups: Groups, directory: PathLike) -> list[pathlib.Path]:
    """Draws the figures of a sweep into `directory`; returns what it wrote.

    An arm looks the same in all of them. Steps without a metric, such as those that had nothing to
    learn from, are left out of its curve.

    Args:
        groups: run directories by data/loss, then by arm.
        directory: where to.
    """
    read = {name: curves.read_runs(arms) for name, arms in groups.items()}
    looks = plotting.looks(arm for arms in read.values() for arm in arms)
    folder = pathlib.Path(directory)
    return [
        _draw(read, looks, panels, folder / name) for name, panels in FIGURES.items()
    ]


def _draw(
    read: Mapping[str, Arms],
    looks: Mapping[str, Look],
    panels: Sequence[Panel],
    path: pathlib.Path,
) -> pathlib.Path:
    pyplot = plotting.pyplot()
    columns, rows = len(panels), len(read)
    if columns == 1:  # the groups are the columns
        columns, rows = len(read), 1
    size = (max(4.4 * columns, 7) + 2.2, max(ROW * rows, 3.6) + 0.3)
    with pyplot.rc_context(plotting.STYLE):
        figure, axes = pyplot.subplots(
            rows, columns, figsize=size, layout="constrained", squeeze=False
        )
        grid = axes.reshape(len(read), len(panels))
        for row, (name, arms) in zip(grid, read.items(), strict=True):
            for axis, panel in zip(row, panels, strict=True):
                axis.set_title(f"{name}\n{panel[0]}", linespacing=1.35)
                _panel(axis, panel, arms, looks)
        _explain(figure, looks)
        return plotting.save(figure, path)


def _panel(axis: Any, panel: Panel, arms: Arms, looks: Mapping[str, Look]) -> None:
    _, curve, against = panel
    thin_first = sorted(arms, key=lambda arm: looks[arm].bold)
    for arm in thin_first:
        found = [curve(records).smooth().against(against) for records in arms[arm]]
        _line(axis, looks[arm], *curves.band(found))
    if panel is ROLLOUTS:
        _name_ends(axis, {arm: arms[arm] for arm in reversed(thin_first)})
    axis.set_xlabel(against)
    axis.margins(x=0.02)
    plotting.say_if_empty(axis)
    _scale(axis, panel)


def _line(axis, look, x, mean, error):
    if not len(x):
        return
    marker = {"marker": "o", "markersize": 3} if len(x) == 1 else {}
    axis.plot(x, mean, **look.style(), **marker)
    if look.bold and error.any():
        band = {"color": look.color, "alpha": 0.16, "linewidth": 0}
        axis.fill_between(x, mean - error, mean + error, **band)


def _name_ends(axis: Any, arms: Arms) -> None:
    """Says at their ends which arms lie on one line."""
    ends = {}
    for arm, runs in arms.items():
        x, mean, _ = curves.band([curves.rollouts(r).against("steps") for r in runs])
        if len(x):
            ends[arm] = (x[-1], mean[-1])
    highest = max((end for _, end in ends.values()), default=1)
    axis.set_ylim(0, 1.12 * highest)
    while ends:
        x, end = next(iter(ends.values()))
        here = [arm for arm in ends if abs(ends[arm][1] - end) <= 0.06 * highest]
        text = ", ".join(here[:2]) + (f" and {len(here) - 2} more" if here[2:] else "")
        axis.annotate(
            text,
            (x, end),
            xytext=(-8, 3),
            textcoords="offset points",
            ha="right",
            fontsize=8.5,
            bbox={"facecolor": "white", "linewidth": 0, "pad": 0.5, "alpha": 0.8},
        )
        ends = {arm: ends[arm] for arm in ends if arm not in here}


def _scale(axis, panel):
    if panel is RATIO:
        axis.set_ylim(0, 1.02)
    elif panel is NORM:
        plotting.from_zero_or_log(axis)
    elif panel is ROLLOUTS:
        axis.yaxis.set_major_formatter(plotting.thousands())
    if panel[2] == "rollouts":
        axis.xaxis.set_major_formatter(plotting.thousands())


def _explain(figure: Any, looks: Mapping[str, Look]) -> None:
    bold_first = sorted(looks, key=lambda arm: not looks[arm].bold)
    handles = [plotting.line(**looks[arm].style()) for arm in bold_first]
    figure.legend(
        handles, bold_first, loc="outside right upper", handlelength=2.6, fontsize=10
    )
    figure.supxlabel(FOOTNOTE, fontsize=9, color=FAINT, x=0.01, ha="left")
