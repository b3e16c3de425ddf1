"""Curves of the metrics in metrics.jsonl."""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence

import numpy as np

from vade_jax.store import metrics

Records = Sequence[metrics.Record]

ACCURACY = "critic/score/mean"  # correctness of the training answers
EFFECTIVE = "vade/effective_ratio"
EFFECTIVE_CORRECT = "vade/effective_ratio_correct"
EFFECTIVE_TRAINED = "vade/trained_effective_ratio_correct"
PREDICTED = "vade/predicted_effective_ratio"
GRADIENT_NORM = "actor/grad_norm"
ROLLOUTS = "vade/rollouts_total"
TOKENS = "vade/tokens_total"
SECONDS = "timing_s/step"
# The axes against which a curve can be drawn and compared: (axis, what it counts).
AXES = {"steps": "steps", "rollouts": "answers", "tokens": "answer tokens", "seconds": "seconds"}
FORGOTTEN = "val-aux/validation/forgotten"
UNLEARNED = (
    0.1  # A kind of question is unlearned while a larger share of what was known is forgotten.
)
KL = "actor/kl_loss"
REWARD = "critic/rewards/mean"
# Metrics that the page shows in addition to the main curves: (metric, title). The page always shows the first
# three, which reveal a policy that degenerates.
DETAILS = (
    ("response_length/mean", "Answer length, tokens"),
    ("actor/entropy", "Entropy of the policy, nats a token"),
    (KL, "KL to the reference"),
    ("response_length/p99", "Answer length, 99th percentile"),
    ("timing_s/gen_tail", "Seconds from the median group to the last"),
    (ACCURACY, "Training accuracy"),
    ("actor/ppo_kl", "KL to the old policy"),
    ("actor/pg_clipfrac", "Clipped share of tokens"),
    ("vade/all_right_ratio", "Groups all right"),
    ("vade/all_wrong_ratio", "Groups all wrong"),
    ("vade/posterior_mean", "Posterior mean of the chosen"),
    ("vade/posterior_error", "Posterior mean, off the pass rate by"),
    ("vade/unique_selected", "Different prompts chosen so far"),
    ("vade/coverage", "Prompts visited in the last epoch"),
    (FORGOTTEN, "Known questions forgotten"),
    ("actor/lr", "Learning rate"),
    ("perf/throughput", "Throughput, tokens/s a device"),
    ("perf/mfu", "Learning, share of the peak"),
    ("perf/max_memory_gb", "Most memory of a device, GB"),
)
_FORGOTTEN = re.compile(r"val-aux/validation/(?P<family>[^/]+)/forgotten")
_VALIDATION = re.compile(r"val/(?P<set>.+)/acc/mean@(?P<samples>\d+)")


# ------------------------------------------------------------------------------ of one run
@dataclasses.dataclass(frozen=True)
class Curve:
    """One quantity of one run; NaN and infinities are left out."""

    steps: np.ndarray
    values: np.ndarray
    records: Records  # all of the run
    smooths: bool = True  # whether it is noisy enough for a moving average

    @functools.cached_property
    def spent(self) -> Mapping[str, np.ndarray]:
        """What was spent up to each step, by axis of `AXES` except steps, as far as it was recorded."""
        return {axis: _at(self.steps, *column) for axis, column in totals(self.records).items()}

    def smooth(self) -> "Curve":
        """Returns the curve of the bold line: the moving average if the curve is noisy."""
        values = moving_average(self.values) if self.smooths else self.values
        return dataclasses.replace(self, values=values)

    def against(self, axis: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns (x, y), where `axis` of `AXES` says what x is; nothing if that was not recorded."""
        if axis == "steps":
            return self.steps, self.values
        nothing = np.zeros(0)
        return (self.spent[axis], self.values) if axis in self.spent else (nothing, nothing)


def named(records: Records, name: str, *, smooths: bool = True) -> Curve:
    """Returns the curve of a metric over the steps that have it."""
    steps, values = _column(records, name)
    return _finite(records, steps, values, smooths)


def validation(records: Records) -> Curve:
    """Returns the plain mean of the accuracies on the validation sets, at the steps that have all sets.

    The sets are those of the last validation: a resumed run may validate on other sets than before, or
    with another number of answers to a question.
    """
    by_step = _most_samples(records)
    sets = next(filter(None, reversed(by_step)), {}).keys()
    steps, values = [], []
    for record, names in zip(records, by_step, strict=True):
        if sets and sets <= names.keys():
            steps.append(record["step"])
            scores = [record[names[name]] for name in sorted(sets)]
            values.append(np.mean(np.array(scores, np.float64)))
    return _finite(records, np.array(steps, np.int64), np.array(values), smooths=False)


def forgotten(records: Records, family: str = "") -> Curve:
    """Returns the forgotten share of the questions that were known once, of all or of one family."""
    name = f"val-aux/validation/{family}/forgotten" if family else FORGOTTEN
    return named(records, name, smooths=False)


def forgotten_families(records: Records) -> list[str]:
    """Returns the families with questions that were known once."""
    matches = (_FORGOTTEN.fullmatch(name) for record in records for name in record)
    return sorted({match["family"] for match in matches if match})


def validation_names(records: Records) -> list[str]:
    """Returns `val/<set>/acc/mean@k` with the largest k, for each set of the last validation."""
    by_set = next(filter(None, reversed(_most_samples(records))), {})
    return [by_set[key] for key in sorted(by_set)]


def _most_samples(records: Records) -> list[dict[str, str]]:
    """Returns the metric with the largest k, by validation set, of each record."""
    matches = filter(None, map(_VALIDATION.fullmatch, set().union(*records)))
    names = [(m["set"], m.string) for m in sorted(matches, key=lambda m: int(m["samples"]))]
    return [{of: name for of, name in names if name in record} for record in records]


def _column(records: Records, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns (steps, values) of the records that have `name`; null becomes NaN."""
    present = [record for record in records if name in record]
    steps = np.array([record["step"] for record in present], np.int64)
    return steps, np.array([record[name] for record in present], np.float64)


def _finite(records: Records, steps: np.ndarray, values: np.ndarray, smooths: bool) -> Curve:
    finite = np.isfinite(values)
    return Curve(steps[finite], values[finite], records, smooths)


def totals(records: Records) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Returns (steps, spent up to them) by axis, of what was recorded.

    Seconds are those of all steps, with their validations and compilations.
    """
    columns = {"rollouts": _column(records, ROLLOUTS), "tokens": _column(records, TOKENS)}
    steps, seconds = _column(records, SECONDS)
    columns["seconds"] = steps, np.cumsum(np.nan_to_num(seconds))
    return {axis: column for axis, column in columns.items() if len(column[0])}


def _at(steps: np.ndarray, known: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Returns the last total up to each step, 0 before the first one."""
    return np.concatenate([[0.0], totals])[np.searchsorted(known, steps, side="right")]


def effective(records: Records) -> Curve:
    """Returns the paper's effective ratio: the share of trained groups neither all right nor all wrong.

    If a run did not record it: the same share of all rolled-out groups or, failing that, the share of groups
        with different rewards.
    """
    there = set().union(*records)
    names = (EFFECTIVE_TRAINED, EFFECTIVE_CORRECT, EFFECTIVE)
    return named(records, next((name for name in names if name in there), EFFECTIVE))


def predicted_and_observed(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Returns the predicted and the observed effective ratio at the steps that have both.

    The posterior counts correct answers, so its forecast is compared with the ratio of groups with right and
    wrong answers. If a run has no such ratio, that of groups with different rewards is used.
    """
    has_correct = any(EFFECTIVE_CORRECT in record for record in records)
    observed = EFFECTIVE_CORRECT if has_correct else EFFECTIVE
    both = [r for r in records if PREDICTED in r and observed in r]
    pair = np.stack([_column(both, name)[1] for name in (PREDICTED, observed)])
    return tuple(pair[:, np.all(np.isfinite(pair), 0)])


def forecast_error(predicted: np.ndarray, observed: np.ndarray) -> tuple[float, float]:
    """Returns the mean absolute error of the forecasts, and the mean of observed - predicted."""
    difference = observed - predicted
    return float(np.mean(np.abs(difference))), float(np.mean(difference))


def quarters(values: np.ndarray) -> tuple[float, float]:
    """Returns the means over the first and over the last quarter of a curve."""
    count = max(1, len(values) // 4)
    return float(values[:count].mean()), float(values[-count:].mean())


def has_spikes(values: np.ndarray) -> bool:
    """Returns whether spikes would flatten most of the curve on a linear axis from 0."""
    return bool(len(values) and np.max(values) > 20 * np.median(values) > 0)


def moving_average(values: np.ndarray) -> np.ndarray:
    """Returns the centred mean over about a twentieth of the curve, over fewer points at both ends."""
    half = len(values) // 40
    # A window's sum is the difference of two running sums: no loop over points.
    total = np.concatenate([[0.0], np.cumsum(values)])
    place = np.arange(len(values))
    start = np.maximum(place - half, 0)
    stop = np.minimum(place + half + 1, len(values))
    return (total[stop] - total[start]) / (stop - start)


def evenly(length: int, count: int) -> np.ndarray:
    """Returns at most `count` evenly spaced indices in 0 .. length - 1, the first and the last included."""
    return np.unique(np.linspace(0, length - 1, min(length, count)).round().astype(int))


def binned(x: np.ndarray, y: np.ndarray, count: int = 8) -> tuple[np.ndarray, np.ndarray]:
    """Returns the means of x and y in at most `count` bins of x, each with about as many points."""
    bins = np.array_split(np.argsort(x), max(1, min(count, len(x) // 5)))
    return np.array([x[i].mean() for i in bins]), np.array([y[i].mean() for i in bins])
