"""Pictures of one run, and of runs side by side, from metrics.jsonl alone."""

import logging
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax.store import curves, metrics

PathLike = str | os.PathLike[str]

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe-Ito
INK, FAINT = "#333333", "#8a8a8a"
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

FOOTNOTE = (
    "thin: each seed, raw;  bold: mean of the seeds, as a moving average over a twentieth "
    "of the run (not of validation and counts)"
)
DASHED = {"linewidth": 1.3, "linestyle": (0, (3, 2))}

# What a single run shows besides its progress: (metric, title).
DETAILS = (
    (curves.ACCURACY, "Training accuracy"),
    ("response_length/mean", "Answer length, tokens"),
    ("vade/posterior_mean", "Mean of the posterior"),
    ("vade/unique_selected", "Different prompts chosen so far"),
    ("actor/pg_clipfrac", "Clipped share of tokens"),
    ("actor/ppo_kl", "KL to the old policy"),
    ("perf/throughput", "Throughput, tokens/s"),
)


def draw(workdir: PathLike) -> list[pathlib.Path]:
    """Draws the figures of one run into `workdir`/figures; returns what it wrote."""
    records = metrics.read(workdir)
    folder = pathlib.Path(workdir) / "figures"
    paths = [compare({"": [workdir]}, folder / "progress.png")]
    if curves.predicted_and_observed(records)[0].size:
        paths.append(calibration([workdir], folder / "calibration.png"))
    shown = [(n, title) for n, title in DETAILS if len(curves.named(records, n).steps)]
    if shown:
        paths.append(_draw_details(records, shown, folder / "details.png"))
    return paths


def compare(runs: Mapping[str, Sequence[PathLike]], path: PathLike) -> pathlib.Path:
    """Draws score, effective ratio, gradient norm and rollouts, against steps and rollouts.

    Args:
        runs: run directories by label, one per seed.
        path: the PNG to write.
    """
    if len(runs) > len(COLORS):
        raise ValueError(
            f"{len(runs)} labels in one figure; {len(COLORS)} can be told apart"
        )
    seeds = curves.read_runs(runs)
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
    pairs = [curves.predicted_and_observed(metrics.read(w)) for w in workdirs]
    predicted, observed = np.concatenate([np.zeros((2, 0)), *pairs], axis=1)
    if not len(predicted):
        raise ValueError(
            f"no {curves.PREDICTED} in {[str(w) for w in workdirs]}: give runs of a "
            "selector with a posterior"
        )
    pyplot = _pyplot()
    with pyplot.rc_context(STYLE):
        figure, axes = pyplot.subplots(figsize=(4.6, 4.6), layout="constrained")
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
        axes.scatter(
            predicted, observed, s=14, color=COLORS[0], alpha=0.35, linewidths=0
        )
        axes.plot(
            *curves.binned(predicted, observed), "o-", color=COLORS[1], markersize=5
        )
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


# ------------------------------------------------------------------------------ the 2 x 4 panels
def _draw_row(row: Any, axis: str, color: str, seeds: Sequence[Any]) -> None:
    score, ratio, norm, total = row
    _lines(score, axis, color, [curves.validation(r) for r in seeds], marker="o")
    _lines(ratio, axis, color, [curves.named(r, curves.EFFECTIVE) for r in seeds])
    predicted = [curves.named(r, curves.PREDICTED) for r in seeds]
    _mean_line(ratio, axis, color, predicted, **DASHED)
    _lines(norm, axis, color, [curves.named(r, curves.GRADIENT_NORM) for r in seeds])
    count = curves.rollouts if axis == "steps" else curves.effective_rollouts
    width = 1.2 if axis == "steps" and total.lines else 2.4  # equal counts stay visible
    _lines(total, axis, color, [count(r) for r in seeds], linewidth=width)


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
    figure.supxlabel(
        FOOTNOTE,
        fontsize=9.5,
        color=FAINT,
        x=0.01,
        ha="left",
    )


def _lines(
    panel: Any, axis: str, color: str, series: Sequence[curves.Curve], **style: Any
) -> None:
    """Draws each seed thin and raw, and their smoothed mean on top, in `style`."""
    for curve in series:
        panel.plot(*curve.against(axis), color=color, linewidth=0.8, alpha=0.3)
    _mean_line(panel, axis, color, series, **{"linewidth": 2.2, **style})


def _mean_line(
    panel: Any, axis: str, color: str, series: Sequence[curves.Curve], **style: Any
) -> None:
    x, mean = curves.average([curve.smooth().against(axis) for curve in series])
    if len(x):
        style = {"marker": "o" if len(x) == 1 else None, "markersize": 4, **style}
        panel.plot(x, mean, color=color, **style)


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
            _lines(panel, "steps", COLORS[0], [curves.named(records, name)])
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
