"""What is written of a sweep: tables, and figures of arms (selectors) against each other, over seeds.

Curves are means over seeds with a band; arms.png has every arm as a point with its interval. An arm
looks the same in all figures.
"""

import functools
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vade_jax.report import comparison, curves, figures, plotting
from vade_jax.report.comparison import LATE, Arm, Comparison, Groups
from vade_jax.report.curves import Mean, Records
from vade_jax.report.plotting import FAINT, Look
from vade_jax.store import metrics

PathLike = str | os.PathLike[str]
Runs = Mapping[str, Sequence[Records]]  # of the seeds of each arm
Looks = Mapping[str, Look]

ROW_HEIGHT = 3.1  # inches of a row of panels
CURVES_NOTE = (
    "mean over seeds, the band of the bold ones is ± one standard error;  effective ratio and gradient "
    "norm: moving average over a twentieth of the run"
)
ARMS_NOTE = (
    "point: mean over seeds;  bar: 95 % interval (Student's t), from three seeds on;  small: single seeds;  accuracy: mean "
    f"of the last {LATE} validations;  difference: seed by seed"
)


class Panel(NamedTuple):
    """What one panel shows of every run."""

    title: str
    curve: Callable[[Records], curves.Curve]
    axis: str = "steps"  # or "rollouts"


SCORE = Panel("Validation accuracy", curves.validation)
RATIO = Panel("Effective ratio", functools.partial(curves.named, name=curves.EFFECTIVE))
NORM = Panel("Gradient norm", functools.partial(curves.named, name=curves.GRADIENT_NORM))
SCORE_OF_ROLLOUTS = Panel("Validation accuracy", curves.validation, "rollouts")
ROLLOUTS = Panel("Rollouts so far", curves.rollouts)

FIGURES = {  # file: the panels of each data/loss
    "effective_ratio.png": (RATIO,),  # the paper's Figure 1
    "learning.png": (SCORE, RATIO, NORM),  # Figures 3, 5, 6, 7
    "rollouts.png": (SCORE_OF_ROLLOUTS, ROLLOUTS),  # Figures 4, 8
}


def write(groups: Groups, directory: PathLike, *, baseline: str = "vanilla") -> Comparison:
    """Writes tables (table.md, table.json, selection.md) and figures; returns the numbers.

    Where there is an arm "vade", also how well its posterior foretells the effective ratio.

    Args:
        groups: run directories by data/loss, then arm; their seeds are read from them.
        directory: where to.
        baseline: the arm that the others are compared with.
    """
    folder = pathlib.Path(directory)
    compared = comparison.compare(groups, baseline=baseline)
    comparison.write(compared, folder)
    chosen = [f"## {name}\n\n{comparison.selection_table(arms)}\n" for name, arms in groups.items()]
    (folder / "selection.md").write_text("\n".join(chosen))
    runs = {
        name: {
            arm: [metrics.read(workdir) for workdir in workdirs] for arm, workdirs in arms.items()
        }
        for name, arms in groups.items()
    }
    looks = plotting.looks(arm for arms in groups.values() for arm in arms)
    for name, panels in FIGURES.items():
        _draw_curves(runs, looks, panels, folder / name)
    _draw_arms(compared, looks, folder / "arms.png")
    own = [records for arms in runs.values() for records in arms.get("vade", ())]
    figures.draw_calibration(own, folder / "calibration.png")
    return compared


# ------------------------------------------------------------------------------ curves
def _draw_curves(
    groups: Mapping[str, Runs], looks: Looks, panels: Sequence[Panel], path: PathLike
) -> None:
    """Draws a row of panels for each data/loss; of one panel each, all in one row.

    Steps without a metric, such as those that had nothing to learn from, are left out of its curve.
    """
    columns, rows = len(panels), len(groups)
    if columns == 1:
        columns, rows = len(groups), 1
    size = (max(4.4 * columns, 7) + 2.2, max(ROW_HEIGHT * rows, 3.6) + 0.3)
    with plotting.panels(path, rows, columns, size=size, note=CURVES_NOTE) as (figure, axes):
        grid = axes.reshape(len(groups), len(panels))
        for row, (name, arms) in zip(grid, groups.items(), strict=True):
            for axes_of_panel, panel in zip(row, panels, strict=True):
                _draw_panel(axes_of_panel, name, panel, arms, looks)
        bold_first = sorted(looks, key=lambda arm: not looks[arm].bold)
        handles = [plotting.line(**looks[arm].style()) for arm in bold_first]
        where = {"loc": "outside right upper", "handlelength": 2.6, "fontsize": 10}
        figure.legend(handles, bold_first, **where)


def _draw_panel(axes: Any, name: str, panel: Panel, arms: Runs, looks: Looks) -> None:
    ends = {}
    for arm in sorted(arms, key=lambda arm: looks[arm].bold):  # the bold ones on top
        smooth = [panel.curve(records).smooth().against(panel.axis) for records in arms[arm]]
        x, mean, error = curves.band(smooth)
        if not len(x):
            continue
        look = looks[arm]
        marker = {"marker": "o", "markersize": 3} if len(x) == 1 else {}
        axes.plot(x, mean, **look.style(), **marker)
        if look.bold and error.any():
            band = {"color": look.color, "alpha": 0.16, "linewidth": 0}
            axes.fill_between(x, mean - error, mean + error, **band)
        ends[arm] = (x[-1], mean[-1])

    axes.set_title(f"{name}\n{panel.title}", linespacing=1.35)
    plotting.finish(axes, panel.axis)
    if panel is ROLLOUTS:
        _name_ends(axes, {arm: ends[arm] for arm in reversed(ends)})
        axes.yaxis.set_major_formatter(plotting.thousands())
    elif panel is RATIO:
        axes.set_ylim(0, 1.02)
    elif panel is NORM:
        plotting.from_zero_or_log(axes)


def _name_ends(axes: Any, ends: dict[str, tuple[float, float]]) -> None:
    """Names the arms at the ends of their lines; arms that share a line share a label."""
    highest = max((y for _, y in ends.values()), default=1)
    axes.set_ylim(0, 1.12 * highest)
    while ends:
        x, y = next(iter(ends.values()))
        here = [arm for arm in ends if abs(ends[arm][1] - y) <= 0.06 * highest]
        text = ", ".join(here[:2]) + (f" and {len(here) - 2} more" if here[2:] else "")
        box = {"facecolor": "white", "linewidth": 0, "pad": 0.5, "alpha": 0.8}
        place = {"xytext": (-8, 3), "textcoords": "offset points", "ha": "right"}
        axes.annotate(text, (x, y), **place, fontsize=8.5, bbox=box)
        ends = {arm: ends[arm] for arm in ends if arm not in here}


# ------------------------------------------------------------------------------ arms
def _draw_arms(compared: Comparison, looks: Looks, path: PathLike) -> None:
    """Draws a row for each data/loss, the best arm on top (the paper's Table 2).

    Columns: accuracy, its difference to the baseline, effective ratio, share on hopeless prompts.
    """
    tallest = max(len(arms) for arms in compared.groups.values())
    num_rows = len(compared.groups)
    size = (13, max((0.27 * tallest + 1.2) * num_rows + 0.4, 3))
    with plotting.panels(path, num_rows, 4, size=size, note=ARMS_NOTE, sharey="row") as (_, axes):
        for panels, (name, arms) in zip(axes, compared.groups.items(), strict=True):
            _draw_arms_of_group(panels, name, arms, looks, compared.baseline)


def _draw_arms_of_group(
    panels: Any, name: str, arms: Mapping[str, Arm], looks: Looks, baseline: str
) -> None:
    score, difference, ratio, hopeless = panels
    columns = {
        "late": (score, "Accuracy"),
        "effective_ratio": (ratio, "Effective ratio"),
        "hopeless": (hopeless, "Share on hopeless prompts"),
    }
    ordered = sorted(arms, key=lambda arm: arms[arm].means["late"].mean)
    for place, label in enumerate(ordered):
        arm, look = arms[label], looks[label]
        for column, (panel, _) in columns.items():
            _draw_point(panel, place, arm.means[column], arm.values[column], look)
        if label != baseline:
            _draw_point(difference, place, arm.difference, arm.differences, look)
    difference.axvline(0, color=FAINT, linewidth=1)
    score.set_yticks(range(len(ordered)), ordered)
    score.set_ylim(-0.6, len(ordered) - 0.4)
    for tick, label in zip(score.get_yticklabels(), ordered, strict=True):
        tick.set_fontweight("bold" if looks[label].bold else "normal")
    for panel, title in (*columns.values(), (difference, f"Difference to {baseline}")):
        panel.set_title(f"{name}\n{title}", linespacing=1.35)
    for panel in (ratio, hopeless):
        panel.set_xlim(left=0)


def _draw_point(panel: Any, place: int, mean: Mean, values: Sequence[float], look: Look) -> None:
    if not mean.count:
        return
    half = mean.half if mean.count > 2 else 0  # that of two seeds hides all others
    size = {"markersize": 8 if look.bold else 6, "elinewidth": 2.2 if look.bold else 1.4}
    panel.errorbar(mean.mean, place, xerr=half, fmt="o", color=look.color, capsize=0, **size)
    if mean.count > 1:
        dots = {"s": 9, "color": look.color, "alpha": 0.55, "linewidths": 0}
        panel.scatter(values, np.full(len(values), place - 0.24), **dots)
