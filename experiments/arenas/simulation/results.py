"""The results of plays: means over seeds with intervals, and a table for each world."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from experiments.arenas import seeds
from experiments.arenas.seeds import Mean
from experiments.arenas.simulation.arena import Result
from experiments.arenas.simulation.selectors import Shape
from vade_jax import tables

LAST = 0.25  # share of the rounds that counts as "last"
COLUMNS = (  # heading, quantity, its form, whether its interval is shown
    ("progress", "progress", "{:.3f}", True),
    ("effective ratio", "effective", "{:.3f}", True),
    ("first ten", "effective_first", "{:.3f}", True),
    ("last quarter", "effective_last", "{:.3f}", True),
    ("of paid", "useful", "{:.3f}", True),
    ("regret", "regret", "{:.3f}", True),
    ("forecast off by", "forecast_gap", "{:.3f}", False),
    ("bias", "forecast_bias", "{:.3f}", False),
    ("visited", "visited", "{:.2f}", False),
    ("most visits", "max_visits", "{:.0f}", False),
    ("hopeless", "hopeless", "{:.3f}", False),
    ("steps", "steps", "{:.0f}", False),
)
EQUAL = "million tokens", "progress at equal tokens"
SAME = 0.01  # answers are as long, but for chance, in a world without lengths
NOTE = """Mean ± half the 95 % interval over {seeds} seeds, {rollouts:,} rollouts each. \
progress: final pass rate on held-out prompts if the world has skills, else on all items \
({start:.3f} at the start). effective ratio: share of mixed groups in a training batch of B; first ten: in all groups of the first ten \
rounds; of paid: \
among all rollouts, measurements included. regret: expected share of mixed groups of the B best items of \
a round, minus that of the chosen ones. forecast: the share of mixed groups that the posterior predicts; \
bias: observed minus forecast. hopeless: rollouts of mislabelled items. s: seconds for all seeds, without \
compilation."""


def summary(result: Result, shape: Shape) -> dict[str, Any]:
    """Returns the `values` of each seed by name, and the mean `curves`.

    The regret of a round is the mean P(mixed) of the B items with the largest P(mixed), minus that of the
    B chosen items. P(mixed) uses the true pass rates at that round, and G answers (for chosen items, the
    number asked for). So it is the share of effective groups that the choice lost, along the selector's
    own path. It ignores the groups that `keep` drops and the cost of measurements; `useful` counts both.
    """
    rounds, paid_U = result.rounds, result.paid_U
    used_SU, trains_SU = rounds["used"], rounds["trains"]
    last = max(1, round(LAST * len(paid_U)))

    def ratio(number):
        """Returns the mean over the training steps in the last rounds."""
        used_S, trains_S = (np.sum(x_SU[:, -number:], axis=1) for x_SU in (used_SU, trains_SU))
        return used_S / np.maximum(trains_S, 1)

    off_SU = rounds["mixed"] - rounds["predicted"]
    values = {
        "progress": rounds["progress"][:, -1],
        "start": rounds["start"][:, 0],
        "effective": ratio(len(paid_U)),
        "effective_last": ratio(last),
        "tokens": rounds["tokens"][:, -1],
        "useful": np.sum(used_SU, axis=1) * shape.of_round / paid_U[-1],
        "regret": np.mean(rounds["regret"], axis=1),
        "forecast_gap": np.mean(np.abs(off_SU), axis=1),
        "forecast_bias": np.mean(off_SU, axis=1),
        **result.ends,
    }
    return {
        "values": values,
        "curves": {name: np.mean(rounds[name], axis=0) for name in ("progress", "tokens")},
        "seconds": result.seconds,
    }


def mean(played: Mapping[str, Any], name: str) -> Mean:
    """Returns a quantity of a selector's summary over its seeds."""
    return seeds.mean(played["values"][name])


# ------------------------------------------------------------------------------ tables
def table(world: str, shape: Shape, played: Mapping[str, Any]) -> str:
    """Returns the world's table, sorted by progress, largest first.

    A world without progress is sorted by the share of mixed groups among all that were paid for. Where
    selectors differ in the tokens of their answers, two columns tell these, and the progress at equal tokens.
    """
    by = "progress" if learns(played) else "useful"
    order = sorted(played, key=lambda label: -mean(played[label], by).mean)
    equal = at_equal_tokens(played)
    rows = []
    for label in order:
        of = {name: mean(played[label], name) for name in played[label]["values"]}
        cells = [
            of[name].text(form) if spread else of[name].text(form).partition(" ")[0]
            for _, name, form, spread in COLUMNS
        ]
        if equal:
            cells += [f"{of['tokens'].mean / 1e6:.2f}", f"{equal[label]:.3f}"]
        rows.append([label, *cells, f"{played[label]['seconds']:.1f}"])
    start = mean(played[order[0]], "start")
    return tables.for_terminal(
        f"## {world}: {shape.num_items:,} items, {shape.num_prompts} prompts a step,"
        f" {shape.num_rollouts} answers each",
        ["selector", *[heading for heading, *_ in COLUMNS], *(EQUAL if equal else ()), "s"],
        rows,
        NOTE.format(seeds=start.count, rollouts=shape.rollouts, start=start.mean),
    )


def at_equal_tokens(played: Mapping[str, Any]) -> dict[str, float]:
    """Returns each selector's progress when it has paid for as many tokens as the cheapest one does in all.

    It is {} where all pay for the same, to within `SAME`.
    """
    ends = [mean(cell, "tokens").mean for cell in played.values()]
    if max(ends) <= min(ends) * (1 + SAME):
        return {}
    of = {label: cell["curves"] for label, cell in played.items()}
    return {
        label: float(np.interp(min(ends), x["tokens"], x["progress"])) for label, x in of.items()
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
        of_worlds = [mean(played[label], name).mean for played in worlds.values()]
        return [x for x in of_worlds if np.isfinite(x)]

    rows = []
    everywhere = set.intersection(*[set(played) for played in worlds.values()])
    for label in sorted(everywhere, key=lambda label: -np.mean(means(label, "progress"))):
        forecast = means(label, "forecast_gap")
        ends = [*means(label, "progress"), np.mean(means(label, "useful"))]
        ends += [max(means(label, "hopeless")), np.mean(forecast) if forecast else np.nan]
        rows.append([label, *(f"{x:.3f}" if np.isfinite(x) else "-" for x in ends)])
    return tables.for_terminal(
        "## All worlds",
        ["selector", *worlds, "of paid", "hopeless", "forecast off by"],
        rows,
        "Progress in each world; of paid and forecast: the mean over them; hopeless: the largest.",
    )


def learns(played: Mapping[str, Any]) -> bool:
    """Returns whether pass rates changed for any selector; in a stationary world they do not."""
    values = [cell["values"] for cell in played.values()]
    return any(np.any(x["progress"] != x["start"]) for x in values)
