"""Pictures of one run, and of runs side by side, from metrics.jsonl alone."""

import dataclasses
import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax.store import metrics

PathLike = str | os.PathLike[str]

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe-Ito
INK, FAINT = "#333333", "#8a8a8a"
EFFECTIVE = "vade/effective_ratio"
EFFECTIVE_CORRECT = "vade/effective_ratio_correct"
PREDICTED = "vade/predicted_effective_ratio"
STYLE = {
    "font.size": 11,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": 160,
}

DASHED = {"linewidth": 1.3, "linestyle": (0, (3, 2))}

# What a single run shows besides its progress: (metric, title).
DETAILS = (
    ("critic/score/mean", "Training reward"),
    ("response_length/mean", "Answer length, tokens"),
    ("vade/posterior_mean", "Mean of the posterior"),
    ("vade/unique_selected", "Different prompts chosen"),
    ("actor/pg_clipfrac", "Clipped share of tokens"),
    ("actor/ppo_kl", "KL to the old policy"),
    ("actor/entropy", "Entropy"),
    ("perf/throughput", "Throughput, tokens/s"),
)


@dataclasses.dataclass(frozen=True)
class Curve:
    """One quantity of one seed; NaN and infinities are left out."""

    steps: np.ndarray
    values: np.ndarray
    rollouts: np.ndarray  # spent up to each step
    smooths: bool = True  # noisy enough for a moving average

    def smooth(self) -> "Curve":
        """Returns what the bold line shows."""
        values = moving_average(self.values) if self.smooths else self.values
        return dataclasses.replace(self, values=values)

    def against(self, axis: str) -> tuple[np.ndarray, np.ndarray]:
        return getattr(self, axis), self.values


def draw(workdir: PathLike) -> list[pathlib.Path]:
    """Draws the figures of one run into `workdir`/figures; returns what it wrote."""
    records = metrics.read(workdir)
    folder = pathlib.Path(workdir) / "figures"
    paths = [compare({"": [workdir]}, folder / "progress.png")]
    if predicted_and_observed(records)[0].size:
        paths.append(calibration([workdir], folder / "calibration.png"))
    shown = [(n, title) for n, title in DETAILS if len(_curve(records, n).steps)]
    if shown:
        paths.append(_draw_details(records, shown, folder / "details.png"))
    return paths


def compare(runs: Mapping[str, Sequence[PathLike]], path: PathLike) -> pathlib.Path:
    """Draws score, effective ratio, gradient norm and rollouts, against steps and rollouts.

    Args:
        runs: run directories by label, one per seed.
        path: the PNG to write.
    """
    check_runs(runs)
    seeds = {label: [metrics.read(w) for w in dirs] for label, dirs in runs.items()}
    pyplot = _pyplot()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(2, 4, figsize=(13, 6), layout="constrained")
        for row, axis in zip(axes, ("steps", "rollouts"), strict=True):
            for color, records in zip(_colors(len(seeds)), seeds.values(), strict=True):
                _draw_row(row, axis, color, records)
            _finish_row(row, axis, seeds)
        _explain(figure, seeds)
        return _save(figure, path)


def calibration(workdirs: Sequence[PathLike], path: PathLike) -> pathlib.Path:
    """Draws the effective ratio that the posterior predicted against the observed one."""
    pairs = [predicted_and_observed(metrics.read(workdir)) for workdir in workdirs]
    predicted, observed = np.concatenate([np.zeros((2, 0)), *pairs], axis=1)
    if not len(predicted):
        raise ValueError(
            f"no {PREDICTED} in {[str(w) for w in workdirs]}: give runs of a selector "
            "with a posterior"
        )
    pyplot = _pyplot()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(4.6, 4.6), layout="constrained")
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
        axes.scatter(
            predicted, observed, s=14, color=COLORS[0], alpha=0.35, linewidths=0
        )
        axes.plot(*_binned(predicted, observed), "o-", color=COLORS[1], markersize=5)
        gap, bias = np.mean(np.abs(observed - predicted)), np.mean(observed - predicted)
        axes.set(
            xlim=(0, 1),
            ylim=(0, 1),
            aspect="equal",
            xlabel="predicted before the rollouts",
            ylabel="observed",
        )
        axes.set_title(
            f"Effective ratio, {len(predicted)} steps\nmean gap {gap:.3f}, bias {bias:+.3f}"
        )
        axes.text(0.97, 0.09, "one step", color=COLORS[0], ha="right")
        axes.text(0.97, 0.03, "mean of equal-count bins", color=COLORS[1], ha="right")
        return _save(figure, path)


def predicted_and_observed(
    records: Sequence[metrics.Record],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the two effective ratios of the steps that have both.

    The posterior counts correctness, so correctness is what it is held against; the ratio of the
    training reward stands in where a run has no other.
    """
    seen = (
        EFFECTIVE_CORRECT if any(EFFECTIVE_CORRECT in r for r in records) else EFFECTIVE
    )
    both = [record for record in records if PREDICTED in record and seen in record]
    pair = np.stack([metrics.column(both, name)[1] for name in (PREDICTED, seen)])
    predicted, observed = pair[:, np.all(np.isfinite(pair), 0)]
    return predicted, observed


# ------------------------------------------------------------------------------ the 2 x 4 panels
def _draw_row(row: Any, axis: str, color: str, seeds: Sequence[Any]) -> None:
    score, ratio, norm, total = row
    _lines(score, axis, color, [_validation(r) for r in seeds], marker="o")
    _lines(ratio, axis, color, [_curve(records, EFFECTIVE) for records in seeds])
    predicted = [_curve(records, PREDICTED) for records in seeds]
    _mean_line(ratio, axis, color, predicted, **DASHED)
    _lines(norm, axis, color, [_curve(records, "actor/grad_norm") for records in seeds])
    count = _rollouts if axis == "steps" else _effective_rollouts
    width = 1.2 if axis == "steps" and total.lines else 2.4  # equal counts stay visible
    _lines(total, axis, color, [count(records) for records in seeds], linewidth=width)


def _finish_row(row: Any, axis: str, seeds: Mapping[str, Sequence[Any]]) -> None:
    titles = [_score_title(seeds), "Effective ratio", "Gradient norm"]
    titles.append("Rollouts" if axis == "steps" else "Rollouts in mixed groups")
    for panel, title in zip(row, titles, strict=True):
        panel.set_title(title)
        panel.set_xlabel(axis)
        panel.margins(x=0.02)
        if axis == "rollouts":
            panel.xaxis.set_major_formatter(_thousands())
        if not panel.lines:
            place = {"ha": "center", "transform": panel.transAxes}
            panel.text(0.5, 0.5, "not measured", color=FAINT, **place)
    row[1].set_ylim(0, 1.02)
    row[3].yaxis.set_major_formatter(_thousands())
    row[3].set_ylim(bottom=0)
    if _has_spikes(row[2]):
        row[2].set_yscale("log")
        row[2].set_title("Gradient norm, log scale")
    else:
        row[2].set_ylim(bottom=0)


def _has_spikes(panel: Any) -> bool:
    """Tells whether a few values would press all others to the floor."""
    values = np.concatenate([[0.0], *(line.get_ydata() for line in panel.lines)])
    return bool(np.max(values) > 20 * np.median(values))


def _explain(figure: Any, seeds: Mapping[str, Sequence[Any]]) -> None:
    """Says in one legend and one line what is drawn."""
    from matplotlib import lines

    labels = [label for label in seeds if label]
    handles = [
        lines.Line2D([], [], color=color, linewidth=2.4)
        for color in _colors(len(labels))
    ]
    handles.append(lines.Line2D([], [], color=FAINT, **DASHED))
    labels.append("effective ratio predicted before the rollouts")
    figure.legend(handles, labels, loc="outside upper left", ncols=len(labels))
    records = [records for group in seeds.values() for records in group]
    width = window(max(len(r) for r in records))
    count = max(len(group) for group in seeds.values())
    thin = f"each of {count} seeds, raw" if count > 1 else "raw"
    bold = "mean of the seeds, " if count > 1 else ""
    smoothed = "not smoothed"
    if width > 1:
        smoothed = f"moving average over {width} steps (not of validation and counts)"
    figure.supxlabel(
        f"thin: {thin};  bold: {bold}{smoothed}",
        fontsize=9.5,
        color=FAINT,
        x=0.01,
        ha="left",
    )


def _lines(
    panel: Any, axis: str, color: str, curves: Sequence[Curve], **style: Any
) -> None:
    """Draws each seed thin and raw, and their smoothed mean on top, in `style`."""
    for curve in curves:
        panel.plot(*curve.against(axis), color=color, linewidth=0.8, alpha=0.3)
    _mean_line(panel, axis, color, curves, **{"linewidth": 2.2, **style})


def _mean_line(
    panel: Any, axis: str, color: str, curves: Sequence[Curve], **style: Any
) -> None:
    x, mean = average([curve.smooth().against(axis) for curve in curves])
    if len(x):
        style = {"marker": "o" if len(x) == 1 else None, "markersize": 4, **style}
        panel.plot(x, mean, color=color, **style)


# ------------------------------------------------------------------------------ series
def average(
    curves: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the mean of curves over the range they share, on the union of their points."""
    curves = [(x, y) for x, y in curves if len(x)]
    if not curves:
        return np.zeros(0), np.zeros(0)
    first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
    grid = np.unique(np.concatenate([x for x, _ in curves]))
    grid = grid[(grid >= first) & (grid <= last)]
    return grid, np.mean([np.interp(grid, x, y) for x, y in curves], axis=0)


def window(length: int) -> int:
    """Returns the odd width of the moving average: about a twentieth of the curve."""
    return 2 * (length // 40) + 1


def moving_average(values: np.ndarray) -> np.ndarray:
    """Returns the centred mean over `window` points, fewer at the two ends."""
    half = window(len(values)) // 2
    total = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    start = np.maximum(place - half, 0)
    stop = np.minimum(place + half + 1, len(values))
    return (total[stop] - total[start]) / (stop - start)


def _curve(records: Sequence[metrics.Record], name: str, **kwargs: Any) -> Curve:
    return _make_curve(records, *metrics.column(records, name), **kwargs)


def _validation(records: Sequence[metrics.Record]) -> Curve:
    return _make_curve(records, *metrics.validation(records), smooths=False)


def _make_curve(
    records: Sequence[metrics.Record],
    steps: np.ndarray,
    values: np.ndarray,
    smooths: bool = True,
) -> Curve:
    finite = np.isfinite(values)
    steps, values = steps[finite], values[finite]
    return Curve(steps, values, metrics.rollouts_at(records, steps), smooths)


def _rollouts(records: Sequence[metrics.Record]) -> Curve:
    return _curve(records, metrics.ROLLOUTS, smooths=False)


def _effective_rollouts(records: Sequence[metrics.Record]) -> Curve:
    """Returns the rollouts so far whose group had a reward that was not constant."""
    total, ratio = _rollouts(records), _curve(records, EFFECTIVE)
    _, at_total, at_ratio = np.intersect1d(
        total.steps, ratio.steps, return_indices=True
    )
    spent = np.diff(total.values, prepend=0.0)[at_total]
    useful = np.cumsum(spent * ratio.values[at_ratio])
    return Curve(total.steps[at_total], useful, total.values[at_total], False)


def _binned(
    x: np.ndarray, y: np.ndarray, count: int = 8
) -> tuple[np.ndarray, np.ndarray]:
    order = np.array_split(np.argsort(x), max(1, min(count, len(x) // 5)))
    return np.array([x[i].mean() for i in order]), np.array(
        [y[i].mean() for i in order]
    )


# ------------------------------------------------------------------------------ plumbing
def _draw_details(
    records: Sequence[metrics.Record], shown: Sequence[Any], path: PathLike
) -> pathlib.Path:
    pyplot = _pyplot()
    rows = -(-len(shown) // 4)
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(
            rows, 4, figsize=(13, 2.9 * rows), layout="constrained", squeeze=False
        )
        for panel in axes.flat[len(shown) :]:
            panel.set_visible(False)
        for panel, (name, title) in zip(axes.flat, shown, strict=False):
            _lines(panel, "steps", COLORS[0], [_curve(records, name)])
            panel.set_title(title)
            panel.set_xlabel("steps")
        return _save(figure, path)


def _score_title(seeds: Mapping[str, Sequence[Any]]) -> str:
    names = {
        n
        for group in seeds.values()
        for r in group
        for n in metrics.validation_names(r)
    }
    if not names:
        return "Validation accuracy"
    if len(names) > 1:
        return f"Validation accuracy, {len(names)} sets"
    return f"Validation accuracy, {next(iter(names)).rsplit('/', 1)[-1]}"


def check_runs(runs: Mapping[str, Sequence[PathLike]]) -> None:
    if not runs or not all(len(dirs) for dirs in runs.values()):
        raise ValueError(
            f"runs={dict(runs)}: give at least one run directory per label"
        )
    if len(runs) > len(COLORS):
        raise ValueError(
            f"{len(runs)} labels in one figure; {len(COLORS)} can be told apart"
        )
    if any(isinstance(dirs, str | os.PathLike) for dirs in runs.values()):
        raise ValueError(f"runs={dict(runs)}: give a list of run directories per label")


def _colors(count: int) -> Sequence[str]:
    return COLORS[:count]


def _thousands() -> Any:
    from matplotlib import ticker

    return ticker.FuncFormatter(
        lambda x, _: f"{x / 1000:g}k" if x >= 1000 else f"{x:g}"
    )


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    import matplotlib.pyplot

    return matplotlib.pyplot


def _save(figure: Any, path: PathLike) -> pathlib.Path:
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")
    _pyplot().close(figure)
    return path
