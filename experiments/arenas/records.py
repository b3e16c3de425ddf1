"""The runs of a sweep, for its tables and figures: read from run directories, or from one small file.

A run directory has megabytes: checkpoints and every answer. The file of a sweep (its table of runs) has
only what a comparison needs, about two kilobytes a run.
"""

import collections
import dataclasses
import functools
import json
import math
import operator
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from flax import traverse_util

from experiments.arenas import cost
from vade_jax import atomic
from vade_jax.report import curves, outcome
from vade_jax.store import metrics, rollout_log, run_file
from vade_jax.types import PathLike

# The metrics that the table keeps, at every step that has them.
KEPT = re.compile(
    "|".join(
        [
            *("vade/coverage", curves.PREDICTED, "response_length/mean", curves.KL),
            *(name for name, *_ in cost.COSTS),
            *(curves.EFFECTIVE, curves.EFFECTIVE_CORRECT, curves.EFFECTIVE_TRAINED),
            *(curves.GRADIENT_NORM, r"val/.+/acc/mean@\d+", "val-aux/.+"),
        ]
    )
)
DIGITS = 5  # significant digits of a number that is read from a table
SHARED = b"settings"  # key of the file's metadata: the settings that all runs share


@dataclasses.dataclass(frozen=True)
class Recorded:
    """What a comparison needs of a finished run."""

    name: str  # where it was read from
    config: Mapping[str, Any]
    records: Sequence[metrics.Record]
    hopeless: float  # share of rollouts on prompts that cannot be answered correctly; NaN: unknown

    @property
    def seed(self) -> int:
        """The seed, by which runs of different arms are paired."""
        return int(self.config["seed"])

    @functools.cached_property
    def outcome(self) -> outcome.Outcome:
        """The run in numbers, cached for several tables."""
        return outcome.of_run(self.records)


Groups = Mapping[str, Mapping[str, Sequence[Recorded]]]  # runs by data/loss, then by arm


def of_directory(directory: PathLike) -> Recorded:
    """Returns the run in a directory.

    Raises:
        FileNotFoundError: the directory has no run.json or no metrics.jsonl.
    """
    lines = metrics.read(directory)
    config = run_file.settings_of(directory)
    # The lessons of the warm start, if the run has one.
    start = pathlib.Path(f"{config.get('model', {}).get('checkpoint')}.start", "config.json")
    if start.exists():
        config["lessons"] = json.loads(start.read_text())["lessons"]
    return Recorded(str(directory), config, lines, hopeless_share(directory))


def hopeless_share(workdir: PathLike) -> float:
    """Returns the share of a run's rollouts on prompts that cannot be answered correctly, or NaN.

    These prompts are the stratum "impossible" of the built-in data, and prompts with a wrong gold. NaN:
    the run has no rollout logs, or its data do not mark these prompts.
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
def write(groups: Groups, path: PathLike) -> None:
    """Writes the table of a sweep: a row for each run, a column for each metric, one value for each step.

    Settings that all runs share are written once, in the metadata of the file.
    """
    runs = [run for arms in groups.values() for of_arm in arms.values() for run in of_arm]
    configs = [_leaves(_without_places(run.config)) for run in runs]
    shared = {
        field: value
        for field, value in configs[0].items()
        if all(field in config and config[field] == value for config in configs)
    }
    names = [(name, arm) for name, arms in groups.items() for arm in arms for _ in arms[arm]]
    own = [{k: v for k, v in config.items() if k not in shared} for config in configs]
    metric_names = {name for run in runs for x in run.records for name in x if KEPT.fullmatch(name)}
    columns = {
        "group": pa.array([name for name, _ in names]),
        "arm": pa.array([arm for _, arm in names]),
        "settings": pa.array([json.dumps(fields) for fields in own]),
        "hopeless": pa.array([run.hopeless for run in runs], pa.float64()),
        "step": pa.array([[x["step"] for x in run.records] for run in runs], pa.list_(pa.int32())),
        **{name: _column([run.records for run in runs], name) for name in sorted(metric_names)},
    }
    table, metadata = pa.table(columns), json.dumps(shared).encode()
    table = table.replace_schema_metadata({SHARED: metadata})
    with atomic.replacing(path) as partial:
        pq.write_table(table, partial, compression="zstd", write_page_checksum=True)


def read(path: PathLike) -> dict[str, dict[str, list[Recorded]]]:
    """Returns the runs of a table by data/loss, then by arm.

    Raises:
        ValueError: the file was not written by `write`.
    """
    groups: dict[str, dict[str, list[Recorded]]] = {}
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table, metadata = file.read(), file.metadata.metadata
        shared = json.loads(metadata[SHARED])
        for row in table.to_pylist():
            group, arm, settings = row.pop("group"), row.pop("arm"), json.loads(row.pop("settings"))
            config = _nested(shared | settings)
            name = f"{path}: {group}/{arm} with seed {operator.index(config['seed'])}"
            row.pop("foresight", None)  # a column of tables of 0.1.0
            run = Recorded(name, config, hopeless=row.pop("hopeless"), records=_records(row))
            groups.setdefault(group, {}).setdefault(arm, []).append(run)
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise ValueError(
            f"{path} is not a table of runs ({error!r}): a sweep's is {{workdir}}/{{name}}/records.parquet"
        ) from error
    return groups


def _records(row: dict[str, Sequence[float | None] | None]) -> list[metrics.Record]:
    """Returns the records of a run from its columns; null in a column means: this step has no value."""
    lines = [{"step": step} for step in row.pop("step") or ()]
    short = f"%.{DIGITS}g".__mod__  # the fastest way, and a table has a million numbers
    for name, values in row.items():
        for record, value in zip(lines, values, strict=True) if values else ():
            if value is not None:
                record[name] = float(short(value)) if isinstance(value, float) else value
    return lines


def _column(runs: Sequence[Sequence[metrics.Record]], name: str) -> pa.Array:
    """Returns a metric's values, a row for each run: null at steps without it; null for a run without it."""
    values = [[record.get(name) for record in run] for run in runs]
    present = [x for of_run in values for x in of_run if x is not None]
    are_int = all(isinstance(x, int) for x in present)
    number, kind = (int, pa.int64()) if are_int else (float, pa.float32())
    rows = [
        [None if x is None else number(x) for x in of_run]
        if any(x is not None for x in of_run)
        else None
        for of_run in values
    ]
    return pa.array(rows, pa.list_(kind))


def joined(earlier: Groups, new: Groups) -> Groups:
    """Returns the runs of both; if both have a seed of an arm, the run of `new`.

    Values that it lacks because its rollouts were deleted come from `earlier`.
    """
    both = {name: {arm: list(runs) for arm, runs in arms.items()} for name, arms in earlier.items()}
    for name, arms in new.items():
        for arm, runs in arms.items():
            before = {run.seed: run for run in both.setdefault(name, {}).get(arm, ())}
            for run in runs:
                old = before.pop(run.seed, run)
                hopeless = old.hopeless if math.isnan(run.hopeless) else run.hopeless
                before[run.seed] = dataclasses.replace(run, hopeless=hopeless)
            both[name][arm] = list(before.values())
    return both


def _without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings without paths of models, which mean nothing on other machines."""
    config = dict(config)
    place = pathlib.PurePath(config.get("model", {}).get("checkpoint", ""))
    if place.is_absolute():  # otherwise it is a name on the hub
        config["model"] = {**config["model"], "checkpoint": place.name}
    return config


def _leaves(config: Mapping[str, Any]) -> dict[str, Any]:
    """Returns every setting by its dotted name; an empty mapping counts as a value."""
    name = lambda x: x.replace("~", "~0").replace(".", "~1")  # an engine's option may have a dot
    flat = traverse_util.flatten_dict(config, keep_empty_nodes=True)
    value = lambda x: {} if x is traverse_util.empty_node else x
    return {".".join(map(name, path)): value(x) for path, x in flat.items()}


def _nested(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Inverts `_leaves`."""
    name = lambda x: x.replace("~1", ".").replace("~0", "~")
    flat = {tuple(map(name, dotted.split("."))): value for dotted, value in leaves.items()}
    return traverse_util.unflatten_dict(flat)
