"""Pictures of one run, from metrics.jsonl alone."""

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from vade_jax.report import curves, plotting
from vade_jax.report.curves import Records
from vade_jax.report.plotting import COLORS, FAINT
from vade_jax.store import metrics

PathLike = str | os.PathLike[str]

FOOTNOTE = (
    "thin: raw;  bold: moving average over a twentieth of the run (not of validation and "
    "counts);  dashed: predicted before the rollouts"
)

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
    paths = [folder / "progress.png"]
    _draw_progress(records, paths[0])
    if has_predictions(workdir):
        paths.append(folder / "calibration.png")
        calibration([workdir], paths[-1])
    shown = [(n, title) for n, title in DETAILS if len(curves.named(records, n).steps)]
    if shown:
        paths.append(folder / "details.png")
        _draw_details(records, shown, paths[-1])
    return paths


def has_predictions(workdir: PathLike) -> bool:
    """Returns whether the selector of a run forecast its effective ratio."""
    return bool(curves.predicted_and_observed(metrics.read(workdir))[0].size)


def calibration(workdirs: Sequence[PathLike], path: PathLike) -> None:
    """Draws the effective ratio that the posterior predicted against the observed one."""
    pairs = [curves.predicted_and_observed(metrics.read(w)) for w in workdirs]
    predicted, observed = np.concatenate([np.zeros((2, 0)), *pairs], axis=1)
    if not len(predicted):
        raise ValueError(
            f"no {curves.PREDICTED} in {[str(w) for w in workdirs]}: give runs of a "
            "selector with a posterior"
        )
    gap, bias = curves.forecast_error(predicted, observed)
    bins = curves.binned(predicted, observed)
    with plotting.panels(path, size=(4.6, 4.6)) as (_, grid):
        axes = grid[0, 0]
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
        dots = {"s": 14, "color": COLORS[0], "alpha": 0.35, "linewidths": 0}
        axes.scatter(predicted, observed, **dots)
        axes.plot(*bins, "o-", color=COLORS[1], markersize=5)
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


def _draw_progress(records: Records, path: PathLike) -> None:
    """Draws score, effective ratio, gradient norm and rollouts, against steps and rollouts."""
    names = metrics.validation_names(records)
    score_title = "Validation accuracy"
    if names:
        one = names[0].rsplit("/", 1)[-1]
        score_title += f", {one}" if len(names) == 1 else f", {len(names)} sets"
    note = {"note": FOOTNOTE, "note_size": 9.5}
    with plotting.panels(path, 2, 4, size=(13, 6), **note) as (_, axes):
        for row, axis in zip(axes, ("steps", "rollouts"), strict=True):
            _draw_row(row, axis, records, score_title)


def _draw_row(row: Any, axis: str, records: Records, score_title: str) -> None:
    """Draws the four panels of progress against "steps" or "rollouts"."""
    score, ratio, norm, total = row
    if axis == "steps":
        count, count_title = curves.rollouts(records), "Rollouts"
    else:
        count = curves.effective_rollouts(records)
        count_title = "Rollouts in mixed groups"
    _lines(score, axis, curves.validation(records), marker="o")
    _lines(ratio, axis, curves.named(records, curves.EFFECTIVE))
    predicted = curves.named(records, curves.PREDICTED)
    _smooth_line(ratio, axis, predicted, linewidth=1.3, linestyle=(0, (3, 2)))
    _lines(norm, axis, curves.named(records, curves.GRADIENT_NORM))
    _lines(total, axis, count)

    titles = (score_title, "Effective ratio", "Gradient norm", count_title)
    for panel, title in zip(row, titles, strict=True):
        panel.set_title(title)
        panel.set_xlabel(axis)
        panel.margins(x=0.02)
        if axis == "rollouts":
            panel.xaxis.set_major_formatter(plotting.thousands())
        plotting.say_if_empty(panel)
    ratio.set_ylim(0, 1.02)
    total.yaxis.set_major_formatter(plotting.thousands())
    total.set_ylim(bottom=0)
    plotting.from_zero_or_log(norm)


def _draw_details(records: Records, shown: Sequence[tuple[str, str]], path: PathLike) -> None:
    """Draws one panel for each (metric, title)."""
    num_rows = -(-len(shown) // 4)
    with plotting.panels(path, num_rows, 4, size=(13, 2.9 * num_rows)) as (_, axes):
        for panel in axes.flat[len(shown) :]:
            panel.set_visible(False)
        for panel, (name, title) in zip(axes.flat, shown, strict=False):
            _lines(panel, "steps", curves.named(records, name))
            panel.set_title(title)
            panel.set_xlabel("steps")


def _lines(panel: Any, axis: str, curve: curves.Curve, **style: Any) -> None:
    """Draws a curve thin and raw, and smoothed on top, in `style`."""
    panel.plot(*curve.against(axis), color=COLORS[0], linewidth=0.8, alpha=0.3)
    _smooth_line(panel, axis, curve, **{"linewidth": 2.2, **style})


def _smooth_line(panel: Any, axis: str, curve: curves.Curve, **style: Any) -> None:
    x, y = curve.smooth().against(axis)
    if len(x):
        style = {"marker": "o" if len(x) == 1 else None, "markersize": 4, **style}
        panel.plot(x, y, color=COLORS[0], **style)
