"""Figures of one run, from metrics.jsonl alone, and of the arms (selectors) of a sweep over seeds.

Curves of a sweep are means over seeds with a band; arms.png shows every arm as a point with its
interval. An arm has the same look in all figures.
"""

import functools
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.arenas import comparison, cost, maps, plotting
from experiments.arenas.comparison import Comparison, Groups
from experiments.arenas.plotting import COLORS, FAINT, Look
from vade_jax.report import curves
from vade_jax.report.curves import Curve, Mean, Records
from vade_jax.types import PathLike

Runs = Mapping[str, Sequence[Records]]  # by arm: the records of each seed
Looks = Mapping[str, Look]

CURVES_NOTE = (
    "mean over seeds, the band of the bold ones is ± one standard error;  effective ratio and gradient "
    "norm: moving average over a twentieth of the run"
)
ARMS_NOTE = (
    "point: mean over seeds;  bar: 95 % interval (Student's t), from three seeds on;  small: single seeds;  accuracy: mean "
    f"of the last {cost.LATE} validations;  difference: seed by seed"
)
# Figures that `draw_sweep` draws only for some sweeps.
OF_SOME = ("decays.png", "rates.png", "batches.png", "map.png", "calibration.png")
ROW_HEIGHT = 3.1  # inches of a row of panels


class Panel(NamedTuple):
    """A panel's title, the curve that it shows of every run, and how to set its y axis."""

    title: str
    curve: Callable[[Records], Curve]
    y_axis: Callable[[Any], None] = lambda axes: None

    def finish(self, axes: Any, x_axis: str) -> None:
        """Sets up the axes after all lines are drawn; a panel without lines says "not measured"."""
        axes.set_xlabel(x_axis)
        axes.margins(x=0.02)
        if x_axis == "rollouts":
            axes.xaxis.set_major_formatter(plotting.thousands())
        if not any(len(line.get_xdata()) for line in axes.lines):
            place = {"ha": "center", "transform": axes.transAxes}
            axes.text(0.5, 0.5, "not measured", color=FAINT, **place)
        self.y_axis(axes)


def _share(axes: Any) -> None:
    axes.set_ylim(0, 1.02)


SCORE = Panel("Validation accuracy", curves.validation)
RATIO = Panel("Effective ratio", curves.effective, _share)
NORM = Panel(
    "Gradient norm",
    functools.partial(curves.named, name=curves.GRADIENT_NORM),
    plotting.from_zero_or_log,
)
ROLLOUTS = Panel("Rollouts so far", curves.rollouts, plotting.from_zero)

FIGURES = {  # figures of a sweep, by file: the panels of each data/loss, and their x axes
    "effective_ratio.png": [(RATIO, "steps")],  # the paper's Figure 1
    "learning.png": [(SCORE, "steps"), (RATIO, "steps"), (NORM, "steps")],  # Figures 3, 5, 6, 7
    "rollouts.png": [(SCORE, "rollouts"), (ROLLOUTS, "steps")],  # Figures 4, 8
}


def draw_calibration(arms: Runs, path: PathLike) -> bool:
    """Draws the predicted against the observed effective ratio of each arm; returns whether it drew anything.

    It leaves out arms without a forecast: only selectors with a posterior have one.
    """
    pairs = {
        arm: np.concatenate([curves.predicted_and_observed(records) for records in runs], axis=1)
        for arm, runs in arms.items()
        if runs
    }
    pairs = {arm: pair for arm, pair in pairs.items() if pair.size}
    if not pairs:
        return False
    columns = min(len(pairs), 4)
    rows = math.ceil(len(pairs) / columns)
    with plotting.panels(path, rows, columns, size=(4.6 * columns, 4.6 * rows)) as (_, grid):
        for axes, (arm, pair) in zip(grid.flat, pairs.items(), strict=False):
            _draw_forecast(axes, arm, *pair)
        for axes in grid.flat[len(pairs) :]:
            axes.set_visible(False)
    return True


def _draw_forecast(axes: Any, arm: str, predicted: np.ndarray, observed: np.ndarray) -> None:
    gap, bias = curves.forecast_error(predicted, observed)
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
    dots = {"s": 14, "color": COLORS[0], "alpha": 0.35, "linewidths": 0}
    axes.scatter(predicted, observed, **dots)
    axes.plot(*curves.binned(predicted, observed), "o-", color=COLORS[1], markersize=5)
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    axes.set(xlabel="predicted before the rollouts", ylabel="observed")
    axes.set_title(f"{arm}, {len(predicted)} steps\nmean gap {gap:.3f}, bias {bias:+.3f}")
    axes.text(0.97, 0.09, "one step", color=COLORS[0], ha="right")
    axes.text(0.97, 0.03, "mean of equal-count bins", color=COLORS[1], ha="right")


# ------------------------------------------------------------------------------ of a sweep
def draw_sweep(groups: Groups, compared: Comparison, directory: PathLike) -> None:
    """Draws `FIGURES` and arms.png, and those of `OF_SOME` that have something to show."""
    folder = pathlib.Path(directory)
    runs = {
        name: {arm: [run.records for run in recorded] for arm, recorded in arms.items()}
        for name, arms in groups.items()
    }
    looks = plotting.looks(arm for arms in groups.values() for arm in arms)
    for name, panels in FIGURES.items():
        _draw_curves(runs, looks, panels, folder / name)
    _draw_arms(compared, looks, folder / "arms.png")
    maps.draw_decays(compared, folder / "decays.png")
    maps.draw_rates(groups, compared, folder / "rates.png")
    maps.draw_batches(groups, compared, folder / "batches.png")
    maps.draw_settings(groups, compared, looks, folder / "map.png")
    pooled = {arm: [] for arm in looks}  # over data and losses
    for arms in runs.values():
        for arm, own in arms.items():
            pooled[arm] += own
    draw_calibration(pooled, folder / "calibration.png")


def _draw_curves(
    groups: Mapping[str, Runs], looks: Looks, panels: Sequence[tuple[Panel, str]], path: PathLike
) -> None:
    """Draws a row of panels for each data/loss; if each has a single panel, all panels share one row.

    A metric's curve leaves out the steps without it, for example steps that had nothing to learn from.
    """
    columns, rows = len(panels), len(groups)
    if columns == 1:
        columns, rows = rows, 1
    size = (max(4.4 * columns, 7) + 2.2, max(ROW_HEIGHT * rows, 3.6) + 0.3)
    with plotting.panels(path, rows, columns, size=size, note=CURVES_NOTE) as (figure, axes):
        grid = axes.reshape(len(groups), len(panels))
        for row, (name, arms) in zip(grid, groups.items(), strict=True):
            for axes_of_panel, (panel, x_axis) in zip(row, panels, strict=True):
                axes_of_panel.set_title(f"{name}\n{panel.title}", linespacing=1.35)
                _draw_panel(axes_of_panel, panel, x_axis, arms, looks)
        bold_first = sorted(looks, key=lambda arm: not looks[arm].bold)
        handles = [plotting.line(**looks[arm].style()) for arm in bold_first]
        where = {"loc": "outside right upper", "handlelength": 2.6, "fontsize": 10}
        figure.legend(handles, bold_first, **where)


def _draw_panel(axes: Any, panel: Panel, x_axis: str, arms: Runs, looks: Looks) -> None:
    ends = {}
    for arm in sorted(arms, key=lambda arm: looks[arm].bold):  # the bold ones last, so on top
        smooth = [panel.curve(records).smooth().against(x_axis) for records in arms[arm]]
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
    if panel is SCORE and x_axis == "rollouts":
        _draw_peak(axes, arms.get(comparison.PEAK, ()))
    panel.finish(axes, x_axis)
    if panel is ROLLOUTS:
        # Bold arms first: where several lines end together, the label names the first two arms.
        _name_ends(axes, {arm: ends[arm] for arm in reversed(ends)})


def _draw_peak(axes: Any, runs: Sequence[Records]) -> None:
    """Draws a line at DAPO's best validation, the paper's yardstick: the mean of its runs' bests."""
    bests = [curve.values.max() for curve in map(curves.validation, runs) if len(curve.steps)]
    if not bests:
        return
    axes.axhline(np.mean(bests), color=FAINT, linewidth=1, linestyle="--")
    place = {"xycoords": ("axes fraction", "data"), "xytext": (3, 3), "textcoords": "offset points"}
    axes.annotate(
        f"{comparison.PEAK}'s best", (0, np.mean(bests)), **place, color=FAINT, fontsize=8.5
    )


def _name_ends(axes: Any, ends: dict[str, tuple[float, float]]) -> None:
    """Names the arms at the ends of their lines; arms whose lines end together share a label."""
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


def _draw_arms(compared: Comparison, looks: Looks, path: PathLike) -> None:
    """Draws a row of panels for each data/loss, the best arm on top (the paper's Table 2)."""
    num_rows = len(compared.groups)
    heights = [0.27 * len(arms) + 1.2 for arms in compared.groups.values()]
    size = (13, max(sum(heights) + 0.4, 3))
    titles = {
        "late": "Accuracy",
        "difference": f"Difference to {compared.baseline}{compared.at_equal}",
        "effective_ratio": "Effective ratio",
        "hopeless": "Share on hopeless prompts",
    }
    rows: dict[str, Any] = {"sharey": "row", "height_ratios": heights}
    with plotting.panels(path, num_rows, 4, size=size, note=ARMS_NOTE, **rows) as (_, grid):
        for row, (name, arms) in zip(grid, compared.groups.items(), strict=True):
            ordered = sorted(arms, key=lambda arm: arms[arm].means["late"].mean)
            for axes, (column, title) in zip(row, titles.items(), strict=True):
                axes.set_title(f"{name}\n{title}", linespacing=1.35)
                for place, label in enumerate(ordered):
                    if column == "difference":
                        mean, values = arms[label].difference, arms[label].differences
                        values = () if label == compared.baseline else values
                    else:
                        mean, values = arms[label].means[column], arms[label].values[column]
                    if values:
                        _draw_point(axes, place, mean, values, looks[label])
            score, difference, *ratios = row
            score.set_yticks(range(len(ordered)), ordered)
            score.set_ylim(-0.6, len(ordered) - 0.4)
            for tick, label in zip(score.get_yticklabels(), ordered, strict=True):
                tick.set_fontweight("bold" if looks[label].bold else "normal")
            difference.axvline(0, color=FAINT, linewidth=1)
            for axes in ratios:
                axes.set_xlim(left=0)


def _draw_point(axes: Any, place: int, mean: Mean, values: Sequence[float], look: Look) -> None:
    if not mean.count:
        return
    half = mean.half if mean.count > 2 else 0  # an interval of two seeds hides all others
    # Not clipped: with few seeds a point may lie on the edge of its panel.
    size = {"markersize": 8 if look.bold else 6, "elinewidth": 2.2 if look.bold else 1.4}
    style = {"fmt": "o", "color": look.color, "capsize": 0, "clip_on": False}
    axes.errorbar(mean.mean, place, xerr=half, **style, **size)
    if mean.count > 1:
        dots = {"s": 9, "color": look.color, "alpha": 0.55, "linewidths": 0, "clip_on": False}
        axes.scatter(values, np.full(len(values), place - 0.24), **dots)
