"""The results of plays: means over seeds with intervals, and a table and a figure for each world."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.arenas import plotting
from experiments.arenas.plotting import COLORS, FAINT, INK
from experiments.arenas.simulation.arena import Result
from experiments.arenas.simulation.selectors import Shape
from vade_jax import tables
from vade_jax.report import curves

LAST = 0.25  # share of the rounds that counts as "last"
COLUMNS = (  # heading, quantity, digits, whether its interval is shown
    ("progress", "progress", 3, True),
    ("effective ratio", "effective", 3, True),
    ("last quarter", "effective_last", 3, True),
    ("of paid", "useful", 3, True),
    ("regret", "regret", 3, True),
    ("forecast off by", "forecast_gap", 3, False),
    ("bias", "forecast_bias", 3, False),
    ("visited", "visited", 2, False),
    ("most visits", "max_visits", 0, False),
    ("hopeless", "hopeless", 3, False),
    ("steps", "steps", 0, False),
)
EQUAL = "million tokens", "progress at equal tokens"
SAME = 0.01  # answers are as long, but for chance, in a world without lengths
NOTE = """Mean ± half the 95 % interval over {seeds} seeds, {rollouts:,} rollouts each. \
progress: final pass rate on held-out prompts if the world has skills, else on all items \
({start:.3f} at the start). effective ratio: share of mixed groups in a training batch of B; of paid: \
among all rollouts, measurements included. regret: expected share of mixed groups of the B best items of \
a round, minus that of the chosen ones. forecast: the share of mixed groups that the posterior predicts; \
bias: observed minus forecast. hopeless: rollouts of mislabelled items. s: seconds for all seeds, without \
compilation."""


def summary(result: Result, shape: Shape) -> dict[str, Any]:
    """Returns `values` by name, each with its mean, half interval and seeds, and `curves`.

    The regret of a round is the mean P(mixed) of the B items with the largest P(mixed), minus that of the
    B chosen items. P(mixed) uses the true pass rates at that round, and G answers (for chosen items, the
    number asked for). So it is the share of effective groups that the choice lost, along the selector's
    own path. It ignores the groups that `keep` drops and the cost of measurements; `useful` counts both.
    """
    rounds, paid_U = result.rounds, result.paid_U
    used_SU, trains_SU = rounds["used"], rounds["trains"]

    def total(x_SU, part):
        """Returns the sum over the last `part` of the rounds."""
        return np.sum(x_SU[:, -max(1, round(part * len(paid_U))) :], axis=1)

    def ratio(x_SU, part):
        """Returns the mean over the training steps in the last `part` of the rounds."""
        return total(x_SU, part) / np.maximum(total(trains_SU, part), 1)

    off_SU = rounds["mixed"] - rounds["predicted"]
    values = {
        "progress": rounds["progress"][:, -1],
        "start": rounds["start"][:, 0],
        "effective": ratio(used_SU, 1),
        "effective_last": ratio(used_SU, LAST),
        "tokens": rounds["tokens"][:, -1],
        "useful": total(used_SU, 1) * shape.of_round / paid_U[-1],
        "regret": np.mean(rounds["regret"], axis=1),
        "forecast_gap": np.mean(np.abs(off_SU), axis=1),
        "forecast_bias": np.mean(off_SU, axis=1),
        **result.ends,
    }
    return {
        "values": {name: interval(x_S) for name, x_S in values.items()},
        "curves": {
            "rollouts": paid_U.tolist(),
            "effective": curve(held(used_SU, trains_SU)),
            "progress": curve(rounds["progress"]),
            "tokens": curve(rounds["tokens"]),
        },
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
    }


def interval(x_S: np.ndarray) -> dict[str, Any]:
    """Returns the mean, half of the 95 % t interval (None for fewer than two values) and all values."""
    found = curves.mean(np.asarray(x_S, np.float64))
    number = lambda x: float(x) if np.isfinite(x) else None
    seeds = [number(x) for x in np.asarray(x_S, np.float64)]
    return {"mean": number(found.mean), "half": number(found.half), "seeds": seeds}


def held(value_SU: np.ndarray, trains_SU: np.ndarray) -> np.ndarray:
    """Returns the value of the latest training step at every round, NaN before the first step."""
    number_U = np.arange(value_SU.shape[1])
    latest_SU = np.maximum.accumulate(np.where(trains_SU, number_U, -1), axis=1)
    found_SU = np.take_along_axis(value_SU, np.maximum(latest_SU, 0), axis=1)
    return np.where(latest_SU < 0, np.nan, found_SU)


def curve(value_SU: np.ndarray) -> dict[str, list[float | None]]:
    """Returns the mean and half of its interval at every round; None if too few seeds have a value."""
    points = [interval(x) for x in np.asarray(value_SU).T]
    return {
        name: [None if x[name] is None else round(x[name], 5) for x in points]
        for name in ("mean", "half")
    }


# ------------------------------------------------------------------------------ tables
def table(world: str, shape: Shape, played: Mapping[str, Any]) -> str:
    """Returns the world's table, sorted by progress, largest first.

    A world without progress is sorted by the share of mixed groups among all that were paid for. Where
    selectors differ in the tokens of their answers, two columns tell these, and the progress at equal tokens.
    """
    by = "progress" if learns(played) else "useful"
    order = sorted(played, key=lambda label: -played[label]["values"][by]["mean"])
    equal = at_equal_tokens(played)
    rows = []
    for label in order:
        values = played[label]["values"]
        cells = [number(values[name], digits, spread) for _, name, digits, spread in COLUMNS]
        if equal:
            cells += [f"{values['tokens']['mean'] / 1e6:.2f}", f"{equal[label]:.3f}"]
        rows.append([label, *cells, f"{played[label]['seconds']:.1f}"])
    start = played[order[0]]["values"]["start"]
    return tables.for_terminal(
        f"## {world}: {shape.num_items:,} items, {shape.num_prompts} prompts a step,"
        f" {shape.num_rollouts} answers each",
        ["selector", *[heading for heading, *_ in COLUMNS], *(EQUAL if equal else ()), "s"],
        rows,
        NOTE.format(seeds=len(start["seeds"]), rollouts=shape.rollouts, start=start["mean"]),
    )


def at_equal_tokens(played: Mapping[str, Any]) -> dict[str, float]:
    """Returns each selector's progress when it has paid for as many tokens as the cheapest one does in all.

    It is {} where all pay for the same, to within `SAME`.
    """
    ends = {label: cell["values"]["tokens"]["mean"] for label, cell in played.items()}
    least, most = min(ends.values()), max(ends.values())
    if most <= least * (1 + SAME):
        return {}
    of = lambda cell, name: np.array(cell["curves"][name]["mean"], float)
    return {
        label: float(np.interp(least, of(cell, "tokens"), of(cell, "progress")))
        for label, cell in played.items()
    }


def overview(results: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns one table of all worlds in which pass rates change, the best average progress first.

    It is "" if there are fewer than two such worlds.
    """
    worlds = {world: played for world, played in results.items() if learns(played)}
    if len(worlds) < 2:
        return ""

    def means(label, name):
        """Returns a selector's means of a quantity over the worlds that have it."""
        found = [played[label]["values"][name]["mean"] for played in worlds.values()]
        return [x for x in found if x is not None]

    def cell(found):
        return f"{found:.3f}" if np.isfinite(found) else "-"

    rows = []
    everywhere = set.intersection(*[set(played) for played in worlds.values()])
    for label in sorted(everywhere, key=lambda label: -np.mean(means(label, "progress"))):
        forecast = means(label, "forecast_gap")
        ends = [*means(label, "progress"), np.mean(means(label, "useful"))]
        ends += [max(means(label, "hopeless")), np.mean(forecast) if forecast else np.nan]
        rows.append([label, *map(cell, ends)])
    return tables.for_terminal(
        "## All worlds",
        ["selector", *worlds, "of paid", "hopeless", "forecast off by"],
        rows,
        "Progress in each world; of paid and forecast: the mean over them; hopeless: the largest.",
    )


def learns(played: Mapping[str, Any]) -> bool:
    """Returns whether pass rates changed for any selector; in a stationary world they do not."""
    found = [cell["values"] for cell in played.values()]
    return any(x["progress"]["seeds"] != x["start"]["seeds"] for x in found)


def number(value: Mapping[str, Any], digits: int, spread: bool = False) -> str:
    """Returns a mean as text, with its half interval if asked for and known; "-" if there is none."""
    mean, half = value["mean"], value["half"]
    if mean is None:
        return "-"
    return f"{mean:.{digits}f}" + (f" ± {half:.{digits}f}" if spread and half is not None else "")


# ------------------------------------------------------------------------------ figure
TITLES = {
    "effective": "Mixed groups in a training batch",
    "progress": "Pass rate, with 95 % intervals",
}
ENDS = {
    "progress": "Pass rate at the end",
    "useful": "Mixed groups, of all paid for",
}


def draw(
    world: str,
    played: Mapping[str, Any],
    highlight: Sequence[str],
    path: str | os.PathLike[str],
) -> None:
    """Draws a world's selectors, `highlight` in colour, the others in grey.

    Three panels show both curves against rollouts, and the final pass rates. If nothing is learned in the
    world, it has no pass rates to show, and the last panel shows the selectors' mixed groups instead.
    """
    shown = [label for label in highlight if label in played][: len(COLORS)]
    colors = dict(zip(shown, COLORS, strict=False))
    moved = learns(played)
    names = [*TITLES] if moved else ["effective"]
    widths, height = [5] * len(names) + [4], max(4.2, 1.2 + 0.2 * len(played))
    with plotting.panels(path, 1, len(widths), size=(sum(widths), height), width_ratios=widths) as (
        figure,
        grid,
    ):
        axes = grid[0]
        for panel, name in zip(axes, names, strict=False):
            draw_curves(panel, played, colors, name)
        axes[0].set_ylim(0, 1.02)
        draw_ends(axes[-1], played, colors, "progress" if moved else "useful")
        handles = [plotting.line(color=colors[x], linewidth=2) for x in shown]
        where = {"loc": "outside upper left", "ncols": len(shown) or 1}
        figure.legend(handles, shown, title=world, **where).set_alignment("left")


def draw_curves(axes, played, colors, name):
    """Draws one quantity of all selectors against rollouts; `colors` are those of highlighted selectors."""
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


def draw_ends(axes, played, colors, name):
    """Draws the final values of all selectors, the best on top."""
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
