"""What the page's script draws: curves and the calibration, as plain numbers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax.report import curves
from vade_jax.report.curves import Curve
from vade_jax.report.run import Run

Spec = dict[str, Any]

OBSERVED, PREDICTED = "observed", "predicted"
DETAILS = (  # (metric, title)
    (curves.ACCURACY, "Training accuracy"),
    ("response_length/mean", "Answer length, tokens"),
    ("actor/kl_loss", "KL to the reference"),
    ("actor/pg_clipfrac", "Clipped share of tokens"),
    ("vade/all_right_ratio", "Groups all right"),
    ("vade/all_wrong_ratio", "Groups all wrong"),
    ("vade/posterior_mean", "Posterior mean of the chosen"),
    ("vade/unique_selected", "Different prompts chosen so far"),
    ("perf/throughput", "Throughput, tokens/s"),
)


def dynamics(runs: Sequence[Run], points: int) -> list[Spec]:
    """Returns the paper's three curves and the score against rollouts.

    Args:
        runs: drawn over each other.
        points: of a curve at most; of more, evenly chosen ones are kept.
    """
    ratio = [
        line
        for i, run in enumerate(runs)
        for line in (
            _line(i, OBSERVED, curves.named(run.records, curves.EFFECTIVE), points),
            _line(
                i, PREDICTED, curves.named(run.records, curves.PREDICTED), points, True
            ),
        )
    ]
    norm = [
        _line(i, "", curves.named(run.records, curves.GRADIENT_NORM), points)
        for i, run in enumerate(runs)
    ]
    score = [
        _line(i, "", curves.validation(run.records), points)
        for i, run in enumerate(runs)
    ]
    return [
        _chart("ratio", "Effective ratio", ratio, y=(0, 1)),
        _chart("score", "Validation accuracy", score, points=True),
        _chart("norm", "Gradient norm", norm, log=_has_spikes(norm)),
        _chart(
            "efficiency", "Score against rollouts", score, axis="rollouts", points=True
        ),
    ]


def details(runs: Sequence[Run], points: int) -> list[Spec]:
    """Returns what else was measured, the curves that no run has left out."""
    found = []
    for name, title in DETAILS:
        lines = [
            _line(i, "", curves.named(run.records, name), points)
            for i, run in enumerate(runs)
        ]
        found.append(_chart("detail-" + name.replace("/", "-"), title, lines))
    return [chart for chart in found if chart["series"]]


def calibration(runs: Sequence[Run], points: int) -> Spec | None:
    """Returns the predicted against the observed effective ratio, None if no run predicts."""
    clouds = []
    for i, run in enumerate(runs):
        predicted, observed = curves.predicted_and_observed(run.records)
        if predicted.size:
            kept = _evenly(len(predicted), points)
            x, y = curves.binned(predicted, observed)
            clouds.append(
                {
                    "run": i,
                    "x": numbers(predicted[kept]),
                    "y": numbers(observed[kept]),
                    "bins": {"x": numbers(x), "y": numbers(y)},
                    "gap": float(np.mean(np.abs(observed - predicted))),
                    "bias": float(np.mean(observed - predicted)),
                }
            )
    chart = {
        "id": "calibration",
        "kind": "scatter",
        "title": "Predicted against observed",
    }
    return {**chart, "clouds": clouds} if clouds else None


def numbers(values: Any, digits: int = 4) -> list[float | None]:
    """Returns JSON numbers of a few significant digits; null for what is not finite."""
    values = np.asarray(values, np.float64)
    return [float(f"{x:.{digits}g}") if np.isfinite(x) else None for x in values]


def _line(run: int, name: str, curve: Curve, points: int, dashed: bool = False) -> Spec:
    kept = _evenly(len(curve.steps), points)
    return {
        "run": run,
        "name": name,
        "dashed": dashed,
        "step": curve.steps[kept].tolist(),
        "rollouts": curve.rollouts[kept].tolist(),
        "raw": numbers(curve.values[kept]) if curve.smooths and not dashed else None,
        "y": numbers(curve.smooth().values[kept]),
        "thinned": len(kept) < len(curve.steps),
    }


def _chart(name: str, title: str, lines: Sequence[Spec], **options: Any) -> Spec:
    series = [line for line in lines if line["step"]]
    return {"id": name, "kind": "line", "title": title, "series": series, **options}


def _evenly(length: int, count: int) -> np.ndarray:
    return np.unique(np.linspace(0, length - 1, min(length, count)).round().astype(int))


def _has_spikes(lines: Sequence[Mapping[str, Any]]) -> bool:
    """As in the figures: spikes that press all else to the floor ask for a log scale."""
    values = np.array(
        [x for line in lines for x in line["y"] if x is not None], np.float64
    )
    return bool(values.size and values.max() > 20 * np.median(values) > 0)
