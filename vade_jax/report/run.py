"""A run directory as far as it can be read: what is missing or broken becomes a note."""

import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax.report import groups
from vade_jax.store import metrics

PathLike = str | os.PathLike[str]

CONFIG, VERSIONS = "config.json", "versions.json"


@dataclasses.dataclass(frozen=True)
class Run:
    """One run directory; empty where nothing is there."""

    label: str
    workdir: pathlib.Path
    records: Sequence[metrics.Record]  # one a step, ascending; finite numbers only
    log: groups.Log
    config: Mapping[str, Any]
    versions: Mapping[str, str]
    notes: Sequence[str]  # what is missing or could not be read, the log's too

    @property
    def is_empty(self) -> bool:
        return not (self.records or self.log.groups or self.config)


def read(workdir: PathLike, label: str | None = None) -> Run:
    """Returns what a run directory holds; an empty run if it holds nothing."""
    workdir = pathlib.Path(workdir)
    notes: list[str] = []
    return Run(
        label=label or workdir.absolute().name,
        workdir=workdir,
        records=_records(workdir / metrics.FILE, notes),
        config=_mapping(workdir / CONFIG, notes),
        versions=_mapping(workdir / VERSIONS, notes),
        log=groups.read(workdir, notes),
        notes=notes,
    )


def labels(workdirs: Sequence[PathLike]) -> list[str]:
    """Returns the shortest ends of the paths, from their last part on, that tell them apart."""
    parts = [pathlib.Path(w).absolute().parts for w in workdirs]
    for count in range(1, max(map(len, parts)) + 1):
        found = ["/".join(p[-count:]).lstrip("/") for p in parts]
        if len(set(found)) == len(set(parts)):
            break
    return found


def once(workdirs: Sequence[PathLike]) -> tuple[list[PathLike], list[str]]:
    """Returns the directories that differ, and a note on each that came again."""
    found: dict[pathlib.Path, PathLike] = {}
    notes = []
    for workdir in workdirs:
        path = pathlib.Path(workdir).resolve()
        if path in found:
            notes.append(f"{workdir} was given more than once: shown once")
        found.setdefault(path, workdir)
    return list(found.values()), notes


def other_sets(runs: Sequence[Run]) -> list[str]:
    """Returns a note where accuracies of different validations are over each other."""
    names = {r.label: ", ".join(metrics.validation_names(r.records)) for r in runs}
    if len({sets for sets in names.values() if sets}) < 2:
        return []
    each = "; ".join(f"{label}: {sets}" for label, sets in names.items() if sets)
    return [f"a validation that all share: the accuracies do not compare ({each})"]


def _records(path: pathlib.Path, notes: list[str]) -> list[metrics.Record]:
    """Returns one record a step, the later one of two; lines that are none are counted."""
    if not path.is_file():
        notes.append(f"{path.name} is missing: no curves and no times")
        return []
    by_step, bad = {}, 0
    for line in path.read_bytes().split(b"\n"):
        record = _record(line) if line.strip() else {}
        if record is None:
            bad += 1
        elif record:
            by_step[record["step"]] = record
    if bad:
        lines = "line is" if bad == 1 else "lines are"
        notes.append(f"{bad} {lines} no record of a step in {path.name}, left out")
    if not by_step:
        notes.append(f"{path.name} has no step yet: no curves and no times")
    return [by_step[step] for step in sorted(by_step)]


def _record(line: bytes) -> metrics.Record | None:
    """Returns the finite numbers of a line with its step, None if it has none."""
    try:
        found = json.loads(line)
        step = int(np.int64(found["step"]))
        return {k: x for k, x in found.items() if is_number(x)} | {"step": step}
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None


def is_number(x: Any) -> bool:
    """Returns whether it can be drawn."""
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _mapping(path: pathlib.Path, notes: list[str]) -> Mapping[str, Any]:
    if not path.is_file():
        if path.name == CONFIG:
            notes.append(f"{path.name} is missing: what the run was told is not known")
        return {}
    try:
        found = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        notes.append(f"{path.name} cannot be read: {error}")
        return {}
    if not isinstance(found, dict):
        notes.append(f"{path.name} cannot be read: it holds no names and values")
        return {}
    return found
