"""Maps over training time: where the posterior lay, what came back, and what was chosen."""

import collections
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from vade_jax.report.charts import numbers
from vade_jax.report.groups import Group, Log

Map = dict[str, Any]

COLUMNS = 80  # of steps, at most
RATES = 20  # bins of the pass rate
FINE = 10  # points of the density in a bin
SUBSETS = 16  # rows of the map of subsets; the rest share the last one


def posterior(log: Log) -> Map | None:
    """Returns the mean density of the chosen prompts' posteriors, before their rollouts.

    A column sums to 1: the mean over its groups of Beta(alpha + 1, beta + 1), in `RATES` bins.
    """
    known = [g for g in log.groups if math.isfinite(g.alpha) and math.isfinite(g.beta)]
    if not known:
        return None
    columns, edges = _columns(known)
    mass = [
        beta_mass([g.alpha for g in c], [g.beta for g in c]).mean(0) for c in columns
    ]
    rows = [f"{i / RATES:.2f}–{(i + 1) / RATES:.2f}" for i in range(RATES)]
    return _map("posterior", edges, rows, mass, "of the mass")


def observed(log: Log) -> Map | None:
    """Returns the share of groups by how many of their answers were right."""
    judged = [group for group in log.groups if group.count]
    if not judged:
        return None
    columns, edges = _columns(judged)
    counts = {group.count for group in judged}
    size = counts.pop() if len(counts) == 1 else 0
    if 0 < size <= RATES:
        place = lambda group: group.right
        rows = [f"{i} of {size}" for i in range(size + 1)]
    else:
        place = _quarter
        rows = ["none", "under 0.25", "0.25–0.5", "0.5–0.75", "0.75 or more", "all"]
    share = [
        np.bincount([place(g) for g in c], minlength=len(rows)) / len(c)
        for c in columns
    ]
    return _map("observed", edges, rows, share, "of the groups")


def _quarter(group: Group) -> int:
    """Returns the row of a group among others of another size."""
    if group.right in (0, group.count):
        return 5 if group.right else 0
    return 1 + 4 * group.right // group.count


def subsets(log: Log) -> Map | None:
    """Returns the share of groups of each subset, the largest first."""
    if not log.groups:
        return None
    columns, edges = _columns(log.groups)
    of = lambda group: log.prompts[group.uid].subset
    ranked = [
        name for name, _ in collections.Counter(map(of, log.groups)).most_common()
    ]
    place = {name: min(i, SUBSETS - 1) for i, name in enumerate(ranked)}
    rows, named = ranked[:SUBSETS], SUBSETS
    if len(ranked) > SUBSETS:
        rows[-1], named = f"{len(ranked) - SUBSETS + 1} others", SUBSETS - 1
    share = [
        np.bincount([place[of(g)] for g in c], minlength=len(rows)) / len(c)
        for c in columns
    ]
    return {**_map("subsets", edges, rows, share, "of the groups"), "named": named}


def beta_mass(alpha_M: Sequence[float], beta_M: Sequence[float]) -> np.ndarray:
    """Returns [M, RATES], the mass of Beta(alpha + 1, beta + 1) in equal bins of the pass rate."""
    x = (np.arange(RATES * FINE) + 0.5) / (RATES * FINE)
    log_density = np.outer(alpha_M, np.log(x)) + np.outer(beta_M, np.log1p(-x))
    density = np.exp(log_density - log_density.max(1, keepdims=True))
    bins = density.reshape(-1, RATES, FINE).sum(2)
    return bins / bins.sum(1, keepdims=True)


def _columns(groups: Sequence[Group]) -> tuple[list[list[Group]], list[list[int]]]:
    """Returns the groups of at most `COLUMNS` spans of steps, and [first, last] step of each."""
    by_step = collections.defaultdict(list)
    for group in groups:
        by_step[group.step].append(group)
    spans = np.array_split(sorted(by_step), min(COLUMNS, len(by_step)))
    columns = [[group for step in span for group in by_step[step]] for span in spans]
    return columns, [[int(span[0]), int(span[-1])] for span in spans]


def _map(
    name: str, edges: list[list[int]], rows: list[str], columns: list[Any], unit: str
) -> Map:
    """Rows go up, from the first at the bottom, but subsets, the first of which is the largest."""
    return {
        "id": name,
        "kind": "map",
        "columns": edges,
        "rows": rows,
        "values": [numbers(np.round(column, 4), 3) for column in columns],
        "unit": unit,
        "named": len(rows),  # rows that set the scale
        "up": name != "subsets",
        "rates": name == "posterior",
    }
