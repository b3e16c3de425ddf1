"""The page's charts as plain numbers, which its script draws: curves, calibration, and maps over steps."""

import collections
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vade_jax.report import curves
from vade_jax.report.curves import Curve
from vade_jax.report.run import Group, Run

Chart = dict[str, Any]

COLUMNS = 80  # columns of a map, at most; each is a span of steps
RATES = 20  # bins of the pass rate
SUBSETS = 16  # rows of the map of subsets, at most; further subsets share the last row


def numbers(values: Any, digits: int = 4) -> list[float | None]:
    """Returns JSON numbers of `digits` significant digits; null for a value that is not finite."""
    values = np.asarray(values, np.float64)
    return [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values]


# ------------------------------------------------------------------------------ curves
def axes(runs: Sequence[Run]) -> dict[str, str]:
    """Returns the possible x axes of the curves, with their names: steps, and what all runs recorded."""
    recorded = [curves.totals(run.records) for run in runs if run.records]
    shared = [axis for axis in curves.AXES if all(axis in of_run for of_run in recorded)]
    return {"step": "steps"} | {axis: curves.AXES[axis] for axis in shared if recorded}


def dynamics(runs: Sequence[Run], points: int) -> list[Chart]:
    """Returns the charts of the paper's three curves, and of the training reward.

    A curve with more than `points` points is thinned evenly to that number.
    """
    ratio, norm, score, reward = [], [], [], []
    for i, run in enumerate(runs):
        observed = curves.effective(run.records)
        predicted = curves.named(run.records, curves.PREDICTED)
        ratio.append(_line(i, observed, points, name="observed"))
        ratio.append(_line(i, predicted, points, name="predicted", dashed=True))
        norm.append(_line(i, curves.named(run.records, curves.GRADIENT_NORM), points))
        score.append(_line(i, curves.validation(run.records), points))
        reward.append(_line(i, curves.named(run.records, curves.REWARD), points))
    # On a linear axis one spike would flatten the curves of all runs: the axis is then logarithmic.
    shown = [x for line in norm for x in line["y"] if x is not None]
    return [
        _chart("ratio", "Effective ratio", ratio, y=(0, 1)),
        _chart("score", "Validation accuracy", score, points=True),
        _chart("reward", "Training reward", reward),
        _chart("norm", "Gradient norm", norm, log=curves.has_spikes(np.asarray(shown))),
    ]


def details(runs: Sequence[Run], points: int) -> list[Chart]:
    """Returns the charts of the other metrics (`curves.DETAILS`) that at least one run has."""
    charts = []
    for name, title in curves.DETAILS:
        lines = [_line(i, curves.named(run.records, name), points) for i, run in enumerate(runs)]
        charts.append(_chart("detail-" + name.replace("/", "-"), title, lines))
    return [chart for chart in charts if chart["series"]]


def calibration(runs: Sequence[Run], points: int) -> Chart | None:
    """Returns the chart of predicted against observed effective ratios; None if no run predicts."""
    clouds = []
    for i, run in enumerate(runs):
        predicted, observed = curves.predicted_and_observed(run.records)
        if not predicted.size:
            continue
        kept = curves.evenly(len(predicted), points)
        x, y = curves.binned(predicted, observed)
        gap, bias = curves.forecast_error(predicted, observed)
        cloud = {"run": i, "x": numbers(predicted[kept]), "y": numbers(observed[kept])}
        clouds.append(
            cloud | {"bins": {"x": numbers(x), "y": numbers(y)}, "gap": gap, "bias": bias}
        )
    title = "Predicted against observed"
    chart = {"id": "calibration", "kind": "scatter", "title": title, "clouds": clouds}
    return chart if clouds else None


def _line(
    run: int, curve: Curve, points: int, *, name: str = "", dashed: bool = False
) -> dict[str, Any]:
    kept = curves.evenly(len(curve.steps), points)
    return {
        "run": run,
        "name": name,
        "dashed": dashed,
        "step": curve.steps[kept].tolist(),
        **{axis: numbers(x[kept], 6) for axis, x in curve.spent.items()},
        "raw": numbers(curve.values[kept]) if curve.smooths and not dashed else None,
        "y": numbers(curve.smooth().values[kept]),
        "thinned": len(kept) < len(curve.steps),
    }


def _chart(name: str, title: str, lines: Sequence[dict[str, Any]], **options: Any) -> Chart:
    series = [line for line in lines if line["step"]]
    return {"id": name, "kind": "line", "title": title, "series": series, **options}


# ------------------------------------------------------------------------------ maps
def maps(run: Run) -> dict[str, Chart]:
    """Returns the maps that the run's rollout logs allow, by kind: posterior, observed, subsets."""
    by_kind = {"posterior": posterior(run), "observed": observed(run), "subsets": subsets(run)}
    return {kind: chart for kind, chart in by_kind.items() if chart}


def posterior(run: Run) -> Chart | None:
    """Returns the map of the chosen prompts' posteriors, as they were before the rollouts.

    Each column is the mean of Beta(alpha + 1, beta + 1) over its groups, in `RATES` bins, and sums to 1.
    """
    known = [g for g in run.groups if math.isfinite(g.alpha) and math.isfinite(g.beta)]
    if not known:
        return None
    spans, edges = _spans(known)
    mass = [beta_mass([g.alpha for g in span], [g.beta for g in span]).mean(0) for span in spans]
    rows = [f"{i / RATES:.2f}–{(i + 1) / RATES:.2f}" for i in range(RATES)]
    return _map(edges, rows, mass, "of the mass", rates=True)


def observed(run: Run) -> Chart | None:
    """Returns the map of groups by how many of their answers were right."""
    judged = [group for group in run.groups if group.count]
    if not judged:
        return None
    counts = {group.count for group in judged}
    if len(counts) == 1 and max(counts) <= RATES:  # groups of one size: a row for each count
        size = counts.pop()
        rows = [f"{i} of {size}" for i in range(size + 1)]
        place = operator.attrgetter("right")
    else:
        rows = ["none", "under 0.25", "0.25–0.5", "0.5–0.75", "0.75 or more", "all"]
        place = _quarter
    return _shares(judged, place, rows)


def _quarter(group: Group) -> int:
    """Returns the row of a group by its share of right answers, for groups of different sizes."""
    if group.right in (0, group.count):
        return 5 if group.right else 0
    return 1 + 4 * group.right // group.count


def subsets(run: Run) -> Chart | None:
    """Returns the map of groups by subset, the largest subset first."""
    if not run.groups:
        return None
    count = collections.Counter(run.prompts[g.uid].subset for g in run.groups)
    rows = [name for name, _ in count.most_common()]
    row = {name: min(i, SUBSETS - 1) for i, name in enumerate(rows)}
    num_named = SUBSETS
    if len(rows) > SUBSETS:
        others, num_named = len(rows) - SUBSETS + 1, SUBSETS - 1
        rows = [*rows[:num_named], f"{others} others"]
    chart = _shares(run.groups, lambda group: row[run.prompts[group.uid].subset], rows)
    # The row of all other subsets does not set the color scale (`named`): it would make named rows pale. The
    # first row, the largest subset, is at the top.
    return {**chart, "named": num_named, "up": False}


def beta_mass(alpha_M: Sequence[float], beta_M: Sequence[float]) -> np.ndarray:
    """Returns the mass of Beta(alpha + 1, beta + 1) in equal bins of the pass rate, [M, RATES]."""
    from scipy import special

    a, b = (np.asarray(x, np.float64)[:, None] + 1 for x in (alpha_M, beta_M))
    return np.diff(special.betainc(a, b, np.linspace(0, 1, RATES + 1)))


def _spans(groups: Sequence[Group]) -> tuple[list[list[Group]], list[list[int]]]:
    """Cuts the steps into at most `COLUMNS` spans; returns the groups and the [first, last] step of each."""
    by_step = collections.defaultdict(list)
    for group in groups:
        by_step[group.step].append(group)
    spans = np.array_split(sorted(by_step), min(COLUMNS, len(by_step)))
    columns = [[group for step in span for group in by_step[step]] for span in spans]
    return columns, [[int(span[0]), int(span[-1])] for span in spans]


def _shares(groups: Sequence[Group], place: Callable[[Group], int], rows: list[str]) -> Chart:
    """Returns the map whose cells are each row's share of the groups in a span of steps."""
    spans, edges = _spans(groups)
    share = [
        np.bincount([place(group) for group in span], minlength=len(rows)) / len(span)
        for span in spans
    ]
    return _map(edges, rows, share, "of the groups")


def _map(
    edges: list[list[int]], rows: list[str], columns: list[Any], unit: str, *, rates: bool = False
) -> Chart:
    return {
        "kind": "map",
        "columns": edges,
        "rows": rows,
        "values": [numbers(np.round(column, 4), 3) for column in columns],
        "unit": unit,
        "named": len(rows),  # the first rows, which set the color scale
        "up": True,  # the first row is at the bottom
        "rates": rates,
    }
