"""One picture a world: effective ratio and progress against rollouts, and where all ended."""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.simulation import report
from vade_jax.report import curves, plotting
from vade_jax.report.plotting import COLORS, FAINT, INK

TITLES = {
    "effective": "Mixed groups in a training batch",
    "progress": "Pass rate, with 95 % intervals",
}
ENDS = {
    "progress": "Pass rate at the end",
    "useful": "Mixed groups, of all paid for",
}
PathLike = str | os.PathLike[str]


def draw(
    world: str,
    played: Mapping[str, Any],
    highlight: Sequence[str],
    path: PathLike,
) -> pathlib.Path:
    """Draws a world's contenders, `highlight` in colour, the others in grey.

    Three panels: both curves against rollouts, and where everyone ended. A world in which nothing is
    learned has no pass rates to show: everyone's mixed groups stand in their place.
    """
    shown = [label for label in highlight if label in played][: len(COLORS)]
    colors = dict(zip(shown, COLORS, strict=False))
    moved = report.learns({label: cell["values"] for label, cell in played.items()})
    names = [*TITLES] if moved else ["effective"]
    widths, height = [5] * len(names) + [4], max(4.2, 1.2 + 0.2 * len(played))
    pyplot = plotting.pyplot()
    with pyplot.rc_context(plotting.STYLE):
        figure, axes = pyplot.subplots(
            *(1, len(widths)),
            figsize=(sum(widths), height),
            layout="constrained",
            width_ratios=widths,
        )
        for panel, name in zip(axes, names, strict=False):
            _curves(panel, played, colors, name)
        axes[0].set_ylim(0, 1.02)
        _ends(axes[-1], played, colors, "progress" if moved else "useful")
        handles = [plotting.line(color=colors[x], linewidth=2) for x in shown]
        figure.legend(
            handles, shown, loc="outside upper left", ncols=len(shown) or 1, title=world
        ).set_alignment("left")
        return plotting.save(figure, path)


def _curves(axes, played, colors, name):
    for label in sorted(played, key=lambda label: label in colors):  # colours on top
        curve, x = played[label]["curves"][name], played[label]["curves"]["rollouts"]
        mean, half = (np.array(curve[k], float) for k in ("mean", "half"))
        known = np.isfinite(mean)
        x, mean, half = np.array(x)[known], mean[known], half[known]
        if name == "effective":
            mean = curves.moving_average(mean)
        look = {"color": FAINT, "linewidth": 0.7, "alpha": 0.5}
        if label in colors:
            look = {"color": colors[label], "linewidth": 2}
            if name == "progress" and np.all(np.isfinite(half)):
                band = {"color": colors[label], "alpha": 0.2, "linewidth": 0}
                axes.fill_between(x, mean - half, mean + half, **band)
        axes.plot(x, mean, **look)
    axes.set_title(TITLES[name])
    axes.set_xlabel("rollouts paid for")
    axes.xaxis.set_major_formatter(plotting.thousands())
    axes.margins(x=0.01)


def _ends(axes, played, colors, name):
    values = {label: cell["values"][name] for label, cell in played.items()}
    order = sorted(values, key=lambda label: values[label]["mean"])
    for place, label in enumerate(order):
        value, color = values[label], colors.get(label, FAINT)
        style = {"fmt": "o", "color": color, "markersize": 5}
        axes.errorbar(value["mean"], place, xerr=value["half"], **style)
    axes.set_yticks(range(len(order)), order, fontsize=8.5)
    for tick, label in zip(axes.get_yticklabels(), order, strict=True):
        tick.set_color(colors.get(label, INK))
    axes.set_title(ENDS[name])
    axes.grid(axis="y", visible=False)
