"""The curves of a sweep over its steps: means over seeds with a band."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.arenas import plotting
from experiments.arenas.comparison import Groups
from experiments.arenas.plotting import FAINT, Look
from vade_jax.report import curves
from vade_jax.report.curves import Curve, Records
from vade_jax.types import PathLike

NOTE = (
    "mean over seeds, the band of the bold ones is ± one standard error;  effective ratio and gradient "
    "norm: moving average over a twentieth of the run"
)
ROW_HEIGHT = 3.1  # inches of a row of panels


class Panel(NamedTuple):
    """A panel's title, the curve that it shows of every run, and how to set its y axis."""

    title: str
    curve: Callable[[Records], Curve]
    y_axis: Callable[[Any], None] = lambda axes: None


PANELS = (  # the paper's Figures 1, 3, 5, 6 and 7
    Panel("Validation accuracy", curves.validation),
    Panel("Effective ratio", curves.effective, lambda axes: axes.set_ylim(0, 1.02)),
    Panel(
        "Gradient norm",
        functools.partial(curves.named, name=curves.GRADIENT_NORM),
        lambda axes: axes.set_yscale("log"),  # it has spikes
    ),
)


def draw_curves(groups: Groups, path: PathLike) -> None:
    """Draws a row of `PANELS` for each data/loss.

    A metric's curve leaves out the steps without it, for example steps that had nothing to learn from.
    """
    looks = plotting.looks(arm for arms in groups.values() for arm in arms)
    size = (4.4 * len(PANELS) + 2.2, max(ROW_HEIGHT * len(groups), 3.6) + 0.3)
    with plotting.panels(path, len(groups), len(PANELS), size=size, note=NOTE) as (figure, grid):
        for row, (name, arms) in zip(grid, groups.items(), strict=True):
            for axes, panel in zip(row, PANELS, strict=True):
                axes.set_title(f"{name}\n{panel.title}", linespacing=1.35)
                for arm in sorted(arms, key=lambda arm: looks[arm].bold):  # the bold ones on top
                    drawn = [panel.curve(run.records).smooth() for run in arms[arm]]
                    _draw_band(axes, looks[arm], *band([(x.steps, x.values) for x in drawn]))
                axes.set_xlabel("steps")
                axes.margins(x=0.02)
                if not axes.lines:
                    place = {"ha": "center", "transform": axes.transAxes}
                    axes.text(0.5, 0.5, "not measured", color=FAINT, **place)
                panel.y_axis(axes)
        bold_first = sorted(looks, key=lambda arm: not looks[arm].bold)
        handles = [plotting.line(**looks[arm].style()) for arm in bold_first]
        where = {"loc": "outside right upper", "handlelength": 2.6, "fontsize": 10}
        figure.legend(handles, bold_first, **where)


def _draw_band(axes: Any, look: Look, x: np.ndarray, mean: np.ndarray, error: np.ndarray) -> None:
    if not len(x):
        return
    marker = {"marker": "o", "markersize": 3} if len(x) == 1 else {}
    axes.plot(x, mean, **look.style(), **marker)
    if look.bold and error.any():
        shade = {"color": look.color, "alpha": 0.16, "linewidth": 0}
        axes.fill_between(x, mean - error, mean + error, **shade)


def band(
    series: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (x, mean, standard error of the mean) of curves over the range that they share.

    x is the union of their points; between its points a curve is interpolated linearly. The error of a
    single curve is 0.
    """
    series = [(x, y) for x, y in series if len(x)]
    if not series:
        return np.zeros(0), np.zeros(0), np.zeros(0)
    first, last = max(x[0] for x, _ in series), min(x[-1] for x, _ in series)
    grid = np.unique(np.concatenate([x for x, _ in series]))
    # Outside the range of one seed the mean would jump, because that seed drops out.
    grid = grid[(grid >= first) & (grid <= last)]
    y = np.stack([np.interp(grid, *one) for one in series])
    spread = np.std(y, 0, ddof=1) if len(y) > 1 else np.zeros(len(grid))
    return grid, y.mean(0), spread / np.sqrt(len(y))
