"""What a run came to: its seed, its scores, and what they cost."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Sequence

import numpy as np

from vade_jax.report import curves, selection
from vade_jax.store import metrics

PathLike = str | os.PathLike[str]

LATE = 3  # validations whose mean stands for the end of a run


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One run in numbers; NaN: not measured."""

    directory: str
    seed: int
    last: float  # validation accuracy, the mean over the sets
    late: float  # mean of the last `LATE` validations: less noisy than the last
    best: float
    effective_ratio: float  # mean over the steps
    rollouts: float
    hopeless: float  # share of the rollouts on prompts that cannot be answered right
    seconds: float  # of its steps, validations included
    steps: np.ndarray  # of the validations
    scores: np.ndarray
    rollouts_then: np.ndarray  # spent before each validation

    def rollouts_to_reach(self, target: float) -> float:
        """Returns the rollouts spent before the first validation of at least `target`, or NaN."""
        reached = np.flatnonzero(self.scores >= target - 1e-9)  # of equal means
        return float(self.rollouts_then[reached[0]]) if reached.size else np.nan


def read(directory: PathLike) -> Outcome:
    """Returns the outcome of a run directory.

    Raises:
        FileNotFoundError: it has no config.json or no metrics.jsonl.
    """
    records = metrics.read(directory)
    valid, seconds = curves.validation(records), _finite(records, "timing_s/step")
    ratio, total = (
        _finite(records, curves.EFFECTIVE),
        _finite(records, metrics.ROLLOUTS),
    )
    return Outcome(
        directory=str(directory),
        seed=seed(directory),
        last=valid.values[-1] if valid.values.size else np.nan,
        late=_mean(valid.values[-LATE:]),
        best=np.max(valid.values, initial=-np.inf) if valid.values.size else np.nan,
        effective_ratio=_mean(ratio),
        rollouts=total[-1] if total.size else np.nan,
        hopeless=selection.hopeless_share(directory),
        seconds=float(seconds.sum()) if seconds.size else np.nan,
        steps=valid.steps,
        scores=valid.values,
        rollouts_then=valid.rollouts,
    )


def seed(directory: PathLike) -> int:
    """Returns the seed in the config.json of a run, which pairs it with runs of other arms."""
    path = pathlib.Path(directory) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{directory} has no config.json, so no seed")
    return int(json.loads(path.read_text())["seed"])


def _finite(records: Sequence[metrics.Record], name: str) -> np.ndarray:
    return curves.named(records, name).values


def _mean(values: np.ndarray) -> float:
    return float(np.mean(values)) if values.size else np.nan
