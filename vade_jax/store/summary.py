"""The short table at the end of a run, and the table that holds runs side by side."""

import os
from collections.abc import Mapping, Sequence

import numpy as np

from vade_jax.store import curves, metrics

PathLike = str | os.PathLike[str]

# Where to look, in the order a reader wants it.
PLACES = (
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


def compare(
    runs: Mapping[str, Sequence[PathLike]], *, baseline: str | None = None
) -> str:
    """Returns a markdown table of labels, each the mean and spread over its seeds.

    "Rollouts to match" is what a seed had spent at its first validation that is at least the
    best score of the baseline with the same seed; one entry a seed, in the order of the run
    directories, which pairs them.

    Args:
        runs: run directories by label, one per seed.
        baseline: a label; by default "uniform" if there is one, else the first.
    """
    seeds = curves.read_runs(runs)
    baseline = _baseline(runs, baseline)
    best = [
        max(scores) if (scores := _scores(r)).size else np.nan for r in seeds[baseline]
    ]
    uneven = {
        label: len(dirs) for label, dirs in runs.items() if len(dirs) != len(best)
    }
    if uneven:
        raise ValueError(f"{baseline} has {len(best)} seeds, others differ: {uneven}")
    head = ["selector", "seeds", "rollouts", "effective ratio", "final accuracy"]
    head += ["best accuracy", f"rollouts to match {baseline}'s best"]
    lines = [head, ["---"] * len(head)]
    lines += [_compare_row(label, group, best) for label, group in seeds.items()]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def rollouts_to_reach(records: Sequence[metrics.Record], target: float) -> float | None:
    """Returns the rollouts spent at the first validation of at least `target`, or None."""
    steps, scores = metrics.validation(records)
    reached = np.flatnonzero(scores >= target - 1e-9)  # a mean of equals may round up
    if not reached.size:
        return None
    return float(metrics.rollouts_at(records, steps[reached[:1]])[0])


# ------------------------------------------------------------------------------ one run
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


# ------------------------------------------------------------------------------ several runs
def _compare_row(
    label: str, seeds: Sequence[Sequence], best: Sequence[float]
) -> list[str]:
    ratios = [_finite(records, curves.EFFECTIVE)[1] for records in seeds]
    scores = [_scores(records) for records in seeds]
    totals = [_finite(records, metrics.ROLLOUTS)[1] for records in seeds]
    reached = list(map(rollouts_to_reach, seeds, best))
    return [
        label,
        str(len(seeds)),
        _spread([total[-1] for total in totals if total.size], "{:,.0f}"),
        _spread([ratio.mean() for ratio in ratios if ratio.size]),
        _spread([score[-1] for score in scores if score.size]),
        _spread([score.max() for score in scores if score.size]),
        ", ".join("not reached" if r is None else f"{r:,.0f}" for r in reached),
    ]


def _scores(records: Sequence[metrics.Record]) -> np.ndarray:
    scores = metrics.validation(records)[1]
    return scores[np.isfinite(scores)]


def _spread(values: Sequence[float], form: str = "{:.3f}") -> str:
    """Returns mean ± sample standard deviation; the mean alone where they agree or n < 2."""
    if not len(values):
        return "not measured"
    mean = form.format(np.mean(values))
    if len(values) < 2 or np.ptp(values) == 0:
        return mean
    return f"{mean} ± {form.format(np.std(values, ddof=1))}"


def _baseline(runs: Mapping[str, Sequence[PathLike]], baseline: str | None) -> str:
    if baseline is None:
        return "uniform" if "uniform" in runs else next(iter(runs))
    if baseline not in runs:
        raise ValueError(f"baseline {baseline!r} is none of the runs {list(runs)}")
    return baseline
