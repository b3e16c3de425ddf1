"""The short table at the end of a run."""

import os
from collections.abc import Sequence

import numpy as np

from vade_jax.report import curves
from vade_jax.store import metrics

PathLike = str | os.PathLike[str]

# Where to look, in the order a reader wants it.
PLACES = (
    ("report.html", "everything on one page: open it in a browser"),
    ("figures", "validation, effective ratio, gradient norm, rollouts"),
    ("rollouts", "every answer, as parquet"),
    ("metrics.jsonl", "one line a step"),
    ("checkpoints", "start again with the same --workdir to resume"),
    ("policy", "the policy as a Hugging Face directory"),
)


def table(records: Sequence[metrics.Record], *, workdir: PathLike | None = None) -> str:
    """Returns what a run learned, what it cost and, given `workdir`, where to look."""
    if not records:
        return "no step was made: nothing to report"
    rows = [*_learned(records), *_spent(records)]
    if workdir is not None:
        rows += _where(workdir)
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows)


def _learned(records: Sequence[metrics.Record]) -> list[tuple[str, str]]:
    rows = [_progress(records, name) for name in metrics.validation_names(records)]
    rows += [_quarters(records, "effective ratio", curves.EFFECTIVE)]
    rows += [_quarters(records, "training accuracy", curves.ACCURACY)]
    predicted, observed = curves.predicted_and_observed(records)
    if predicted.size:
        gap = np.mean(np.abs(observed - predicted))
        bias = np.mean(observed - predicted)
        rows.append(
            (
                "predicted ratio",
                f"off by {gap:.3f} a step; observed - predicted {bias:+.3f}",
            )
        )
    return [row for row in rows if row[1]]


def _progress(records: Sequence[metrics.Record], name: str) -> tuple[str, str]:
    _, *words, _, samples = name.split("/")  # val/<set>/acc/mean@k
    label = f"{'/'.join(words)} accuracy ({samples})"
    steps, values = _finite(records, name)
    if not values.size:
        return label, ""
    at = int(np.argmax(values))
    text = f"{values[0]:.3f} first, {values[at]:.3f} best (step {steps[at]}), "
    return label, text + f"{values[-1]:.3f} last"


def _quarters(
    records: Sequence[metrics.Record], label: str, name: str
) -> tuple[str, str]:
    _, values = _finite(records, name)
    if not values.size:
        return label, ""
    quarter = max(1, len(values) // 4)
    first, last = values[:quarter].mean(), values[-quarter:].mean()
    return label, f"{first:.3f} in the first quarter, {last:.3f} in the last"


def _spent(records: Sequence[metrics.Record]) -> list[tuple[str, str]]:
    totals = []
    for name in ("rollouts", "tokens"):
        values = _finite(records, f"vade/{name}_total")[1]
        totals += [f"{values[-1]:,.0f} {name}"] if values.size else []
    steps = max(record["step"] for record in records)
    rows = [("spent", ", ".join([f"{steps:,} steps", *totals]))]
    seconds = _finite(records, "timing_s/step")[1]
    if seconds.size:
        each = f"{np.median(seconds):.2f} s a step (median)"
        rows.append(("time", f"{_clock(seconds.sum())}, {each}"))
    speed = _finite(records, "perf/throughput")[1]
    if speed.size:
        rows.append(("throughput", f"{np.median(speed):,.0f} tokens/s (median)"))
    return rows


def _where(workdir: PathLike) -> list[tuple[str, str]]:
    paths = [(os.path.join(workdir, name), text) for name, text in PLACES]
    return [(path, text) for path, text in paths if os.path.exists(path)]


def _finite(
    records: Sequence[metrics.Record], name: str
) -> tuple[np.ndarray, np.ndarray]:
    steps, values = metrics.column(records, name)
    return steps[np.isfinite(values)], values[np.isfinite(values)]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"
