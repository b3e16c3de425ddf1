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
    if draw_calibration([records], folder / "calibration.png"):
        paths.append(folder / "calibration.png")
    shown = [(n, title) for n, title in DETAILS if len(curves.named(records, n).steps)]
    if shown:
        paths.append(folder / "details.png")
        _draw_details(records, shown, paths[-1])
    return paths


def draw_calibration(runs: Sequence[Records], path: PathLike) -> bool:
    """Draws the effective ratio that selectors predicted against the observed one.

    Returns whether there was one to draw: only selectors with a posterior predict.
    """
    pairs = [curves.predicted_and_observed(records) for records in runs]
    predicted, observed = np.concatenate([np.zeros((2, 0)), *pairs], axis=1)
    if not len(predicted):
        return False
    gap, bias = curves.forecast_error(predicted, observed)
    with plotting.panels(path, size=(4.6, 4.6)) as (_, grid):
        axes = grid[0, 0]
        axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1)
        dots = {"s": 14, "color": COLORS[0], "alpha": 0.35, "linewidths": 0}
        axes.scatter(predicted, observed, **dots)
        axes.plot(*curves.binned(predicted, observed), "o-", color=COLORS[1], markersize=5)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        axes.set(xlabel="predicted before the rollouts", ylabel="observed")
        axes.set_title(
            f"Effective ratio, {len(predicted)} steps\nmean gap {gap:.3f}, bias {bias:+.3f}"
        )
        axes.text(0.97, 0.09, "one step", color=COLORS[0], ha="right")
        axes.text(0.97, 0.03, "mean of equal-count bins", color=COLORS[1], ha="right")
    return True


def _draw_progress(records: Records, path: PathLike) -> None:
    """Draws score, effective ratio, gradient norm and rollouts, against steps and rollouts."""
    score_title, sets = "Validation accuracy", curves.validation_names(records)
    if sets:
        mean_at = sets[0].rsplit("/", 1)[-1]
        score_title += f", {mean_at}" if len(sets) == 1 else f", {len(sets)} sets"
    note = {"note": FOOTNOTE, "note_size": 9.5}
    with plotting.panels(path, 2, 4, size=(13, 6), **note) as (_, axes):
        for row, axis in zip(axes, ("steps", "rollouts"), strict=True):
            score, ratio, norm, total = row
            _lines(score, axis, curves.validation(records), marker="o")
            score.set_title(score_title)
            _lines(ratio, axis, curves.named(records, curves.EFFECTIVE))
            predicted = curves.named(records, curves.PREDICTED)
            _smooth_line(ratio, axis, predicted, linewidth=1.3, linestyle=(0, (3, 2)))
            ratio.set_title("Effective ratio")
            _lines(norm, axis, curves.named(records, curves.GRADIENT_NORM))
            norm.set_title("Gradient norm")
            if axis == "steps":
                title, count = "Rollouts", curves.rollouts(records)
            else:
                title, count = "Rollouts in mixed groups", curves.effective_rollouts(records)
            _lines(total, axis, count)
            total.set_title(title)
            for panel in row:
                plotting.finish(panel, axis)
            ratio.set_ylim(0, 1.02)
            plotting.from_zero_or_log(norm)
            total.yaxis.set_major_formatter(plotting.thousands())
            total.set_ylim(bottom=0)


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
