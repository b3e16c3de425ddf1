"""What tables and figures of a sweep need of a run, from its directory or from one small file.

A run directory has megabytes: checkpoints, every answer. A record has what a comparison is made of, a few
kilobytes of JSON that can be kept beside a table that is made of it.
"""

import collections
import dataclasses
import json
import math
import operator
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vade_jax import atomic
from vade_jax.report import curves
from vade_jax.store import metrics, rollout_log
from vade_jax.types import PathLike

# The metrics that a record keeps, of every step that has them.
KEPT = re.compile(
    "|".join(
        [
            *("timing_s/step", "vade/rollouts_total", "vade/coverage", curves.PREDICTED),
            *(curves.EFFECTIVE, curves.EFFECTIVE_CORRECT, curves.EFFECTIVE_TRAINED),
            *(curves.GRADIENT_NORM, r"val/.+/acc/mean@\d+", "val-aux/.+"),
        ]
    )
)
DIGITS = 5


@dataclasses.dataclass(frozen=True)
class Recorded:
    """A finished run, as far as it is compared with others."""

    name: str  # where it was read from
    config: Mapping[str, Any]
    records: Sequence[metrics.Record]
    hopeless: float  # share of the rollouts on prompts that cannot be answered right; NaN: unknown

    @property
    def seed(self) -> int:
        """Pairs it with runs of other arms."""
        return int(self.config["seed"])


def of_directory(directory: PathLike) -> Recorded:
    """Returns what a run directory holds.

    Raises:
        FileNotFoundError: it has no config.json or no metrics.jsonl.
    """
    found = metrics.read(directory)
    path = pathlib.Path(directory) / "config.json"
    if not path.is_file():
        raise FileNotFoundError(f"{directory} has no config.json, so no seed")
    config = json.loads(path.read_text())
    return Recorded(str(directory), config, found, hopeless_share(directory))


def hopeless_share(workdir: PathLike) -> float:
    """Returns the share of a run's rollouts on prompts that cannot be answered right, or NaN.

    Those of the built-in data's stratum "impossible", and those with a wrong gold. NaN: the run has
    no rollout logs, or is of data that do not say which prompts those are.
    """
    counted = collections.Counter()
    for path in rollout_log.paths(workdir):
        counted.update(rollout_log.read(path, ["metadata"])["metadata"])
    fields = [(json.loads(text), count) for text, count in counted.items()]
    if not any("stratum" in of for of, _ in fields):
        return math.nan
    hopeless = sum(
        count for of, count in fields if of.get("stratum") == "impossible" or of.get("mislabelled")
    )
    return hopeless / counted.total()


# ------------------------------------------------------------------------------ as one file
def write(run: Recorded, path: PathLike) -> None:
    """Writes the record of a run: its config, and each kept metric as [steps, values]."""
    columns: dict[str, tuple[list, list]] = collections.defaultdict(lambda: ([], []))
    for record in run.records:
        for name, value in record.items():
            if KEPT.fullmatch(name):
                steps, values = columns[name]
                steps.append(record["step"])
                values.append(float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value)
    every = [record["step"] for record in run.records]
    span = [every[0], every[-1]] if every else []
    missing = sorted({*range(span[0], span[1])} - {*every}) if span else []
    config = dict(run.config)
    if "warm_start" in config:  # where it lay on one machine is nothing to keep
        config["warm_start"] = {**config["warm_start"], "directory": ""}
    content = {
        "config": config,
        "hopeless": None if math.isnan(run.hopeless) else run.hopeless,
        "steps": span,
        **({"missing": missing} if missing else {}),
        # Most metrics are of every step but the first record, which is of the untrained policy.
        "metrics": {
            name: {"values": values} if steps == every[1:] else {"steps": steps, "values": values}
            for name, (steps, values) in columns.items()
        },
    }
    atomic.write_text(pathlib.Path(path), json.dumps(content, separators=(",", ":")) + "\n")


def read(path: PathLike) -> Recorded:
    """Returns the run that `write` has written.

    Raises:
        ValueError: the file is no record.
    """
    try:
        content = json.loads(pathlib.Path(path).read_text())
        first, last = content["steps"] or (0, -1)
        missing = set(content.get("missing", ()))
        every = [step for step in range(first, last + 1) if step not in missing]
        found = {step: {"step": step} for step in every}
        for name, column in content["metrics"].items():
            steps = column.get("steps", every[1:])
            for step, value in zip(steps, column["values"], strict=True):
                found[step][name] = value
        config, hopeless = content["config"], content["hopeless"]
        operator.index(config["seed"])
        values = [x for record in found.values() for x in record.values()]
        for value in [hopeless, *values]:
            if not isinstance(value, int | float | None):
                raise ValueError(f"{value!r} is no number")
        hopeless = math.nan if hopeless is None else float(hopeless)
        return Recorded(str(path), config, list(found.values()), hopeless)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path} is no record of a run ({error!r}): a sweep's are in {{workdir}}/{{name}}/records"
        ) from error
