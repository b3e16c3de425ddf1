"""The docs' curves of an arena over its steps: means over seeds with a band."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from experiments.arenas import plotting
from experiments.arenas.records import Recorded
from vade_jax.report import curves
from vade_jax.report.curves import Curve, Records
from vade_jax.types import PathLike

NOTE = (
    "mean over seeds, the band of the bold ones is ± one standard error;  effective ratio and gradient "
    "norm: moving average over a twentieth of the run"
)


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


def draw_curves(heading: str, arms: Mapping[str, Sequence[Recorded]], path: PathLike) -> None:
    """Draws `PANELS` of the runs of each arm.

    A metric's curve leaves out the steps without it, for example steps that had nothing to learn from.
    """
    colors = plotting.colors(arms)
    with plotting.panels(path, len(PANELS), size=(15.4, 3.9), note=NOTE) as (figure, row):
        for axes, panel in zip(row, PANELS, strict=True):
            axes.set_title(f"{heading}\n{panel.title}", linespacing=1.35)
            for arm, runs in arms.items():
                drawn = [panel.curve(run.records).smooth() for run in runs]
                x, mean, error = band([(curve.steps, curve.values) for curve in drawn])
                axes.plot(x, mean, color=colors[arm], linewidth=2.4, zorder=3, label=arm)
                shade = {"color": colors[arm], "alpha": 0.16, "linewidth": 0}
                axes.fill_between(x, mean - error, mean + error, **shade)
            axes.set_xlabel("steps")
            axes.margins(x=0.02)
            panel.y_axis(axes)
        where = {"loc": "outside right upper", "handlelength": 2.6, "fontsize": 10}
        figure.legend(*row[0].get_legend_handles_labels(), **where)


def band(
    series: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (x, mean, standard error of the mean) of curves over the range that they share.

    x is the union of their points; between its points a curve is interpolated linearly. The error of a
    single curve is 0.
    """
    series = [(x, y) for x, y in series if len(x)]
    first, last = max(x[0] for x, _ in series), min(x[-1] for x, _ in series)
    grid = np.unique(np.concatenate([x for x, _ in series]))
    # Outside the range of one seed the mean would jump, because that seed drops out.
    grid = grid[(grid >= first) & (grid <= last)]
    y = np.stack([np.interp(grid, *one) for one in series])
    spread = np.std(y, 0, ddof=1) if len(y) > 1 else np.zeros(len(grid))
    return grid, y.mean(0), spread / np.sqrt(len(y))
