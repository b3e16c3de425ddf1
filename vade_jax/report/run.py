"""Reads a run directory as far as possible: whatever is missing or broken becomes a note.

The rollout logs are read as groups: which prompt was asked at which step, and how many answers were right.
Only the small columns of all steps stay in memory; the text of prompts and answers is read on demand.
"""

import collections
import dataclasses
import functools
import json
import math
import pathlib
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from vade_jax.report import curves
from vade_jax.store import metrics, rollout_log, run_file
from vade_jax.types import PathLike

Columns = Mapping[str, list[Any]]  # columns of a rollout log, by name

VERSIONS = "versions.json"

# Columns of the rollout logs.
REQUIRED = ("uid", "correct")
SMALL = (*REQUIRED, "group", "gold", "kind", "extracted", "metadata")
BELIEF = ("alpha", "beta", "p_drawn")
FIELDS = ("family", "subset", "level", "stratum", "right_answer", "variant")

LONGEST_WRONG = 60  # characters kept of a wrong answer
_SPECIAL = re.compile(r"<\|[^|<>]*\|>")
_LAST_USER_TURN = re.compile(r".*<\|im_start\|>user\n(.*?)(?:<\|im_end\|>|$)", re.DOTALL)


# ------------------------------------------------------------------------------ content
class Group(NamedTuple):
    """One prompt at one step; NaN where the log has no value."""

    step: int
    uid: str
    right: int
    count: int  # answers that were judged
    alpha: float  # the posterior before the step
    beta: float
    drawn: float


@dataclasses.dataclass
class Prompt:
    """A prompt that was asked at least once."""

    uid: str
    gold: str
    kind: str
    fields: Mapping[str, Any]  # the `FIELDS` of the item's metadata
    where: tuple[pathlib.Path, int]  # the log, and its row, that have the text
    visits: list[Group] = dataclasses.field(default_factory=list)
    wrong: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    @property
    def rollouts(self) -> int:
        """The number of answers that were judged."""
        return sum(group.count for group in self.visits)

    @functools.cached_property
    def subset(self) -> str:
        """The family or subset with the level; if the data have none, the kind of answer."""
        name = self.fields.get("family") or self.fields.get("subset", "")
        return f"{name} {self.fields.get('level', '')}".strip() or self.kind or "all"

    @functools.cached_property
    def variant(self) -> str:
        """The change that DIVA made to an item; "" if this is the item itself."""
        change = str(self.fields.get("variant") or "")
        return change if change and self.uid.endswith(f" {change}") else ""

    @property
    def source(self) -> str:
        """The uid of the item; for a variant, that of the item it was made from."""
        return self.uid.removesuffix(f" {self.variant}") if self.variant else self.uid


@dataclasses.dataclass
class Run:
    """The contents of one run directory; whatever it lacks is empty."""

    workdir: pathlib.Path
    label: str = ""
    config: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # its settings
    num_items: int = 0  # in its training data; 0: unknown
    versions: Mapping[str, str] = dataclasses.field(default_factory=dict)
    # One for each step, ascending; finite numbers only.
    records: list[metrics.Record] = dataclasses.field(default_factory=list)
    groups: list[Group] = dataclasses.field(default_factory=list)  # by step
    prompts: dict[str, Prompt] = dataclasses.field(default_factory=dict)  # by uid
    # The readable logs, by step.
    logs: dict[int, pathlib.Path] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)  # missing or broken parts

    @property
    def num_answers(self) -> int:
        """The number of answers in the logs that were judged."""
        return sum(group.count for group in self.groups)

    def texts(self, path: pathlib.Path, names: Iterable[str]) -> Columns:
        """Returns columns of a log; if they cannot be read, they are empty and a note says so."""
        try:
            return _columns(path, names)
        except ValueError as error:
            note = f"texts not readable: {path.name} ({_short(error)})"
            if note not in self.notes:
                self.notes.append(note)
            return {name: [] for name in names}


# ------------------------------------------------------------------------------ reading
def read_all(workdirs: Sequence[PathLike]) -> tuple[list[Run], list[str]]:
    """Returns the runs of directories, and notes on what was left out or cannot be compared.

    Raises:
        FileNotFoundError: the first directory has no files of a run.
    """
    by_path: dict[pathlib.Path, PathLike] = {}
    notes, runs = [], []
    for workdir in workdirs:
        path = pathlib.Path(workdir).resolve()
        if path in by_path:
            notes.append(f"{workdir} was given more than once: shown once")
        by_path.setdefault(path, workdir)
    for workdir, label in zip(by_path.values(), labels(list(by_path.values())), strict=True):
        run = read(workdir, label)
        if run.records or run.groups or run.config:
            runs.append(run)
        elif not runs:
            raise FileNotFoundError(
                f"{workdir} is not a run directory: it has no metrics.jsonl, no rollouts/ and no "
                "run.json that can be read; give the --workdir of a run"
            )
        else:
            notes.append(f"no run in {run.workdir}: left out")
    # The validation curves of all runs share an axis, so a note warns if the sets differ.
    names = {run.label: ", ".join(curves.validation_names(run.records)) for run in runs}
    if len({sets for sets in names.values() if sets}) > 1:
        each = "; ".join(f"{label}: {sets}" for label, sets in names.items() if sets)
        notes.append(f"a validation that all share: the accuracies do not compare ({each})")
    return runs, notes


def labels(workdirs: Sequence[PathLike]) -> list[str]:
    """Returns the end of each path, with just enough parts to tell the paths apart."""
    names = [pathlib.Path(w).absolute().parts for w in workdirs]
    for count in range(1, max(map(len, names)) + 1):
        ends = ["/".join(name[-count:]).lstrip("/") for name in names]
        if len(set(ends)) == len(set(names)):
            break
    return ends


def read(workdir: PathLike, label: str = "") -> Run:
    """Returns the run in a directory, or an empty one if it has no files of a run."""
    run = Run(pathlib.Path(workdir), label)
    run.records = _read_records(run.workdir / metrics.FILE, run.notes)
    of_run = _read_mapping(run.workdir / run_file.FILE, run.notes)
    config, num_items = of_run.get("settings"), of_run.get("num_items")
    run.config = config if isinstance(config, Mapping) else {}
    run.num_items = num_items if isinstance(num_items, int) else 0
    run.versions = _read_mapping(run.workdir / VERSIONS, run.notes)
    broken = []
    for path in rollout_log.paths(workdir):
        try:
            _add_log(run, path)
        except (OSError, ValueError, TypeError) as error:
            broken.append(f"{path.name} ({_short(error)})")
    if broken:
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        run.notes.append(f"rollouts not readable: {', '.join(broken[:3])}{more}")
    if not run.groups:
        run.notes.append("no rollout logs: no prompts, no answers, no map of the posterior")
    run.groups.sort(key=lambda group: group.step)
    return run


def _read_records(path: pathlib.Path, notes: list[str]) -> list[metrics.Record]:
    """Returns the last record of each step; a note counts the lines that are not records.

    It accepts more than `metrics.read`: a partial page is better than an error.
    """
    if not path.is_file():
        notes.append(f"{path.name} is missing: no curves and no times")
        return []
    by_step, num_bad = {}, 0
    for line in path.read_bytes().split(b"\n"):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
            step = int(np.int64(record["step"]))
            numbers = {name: x for name, x in record.items() if is_number(x)}
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            num_bad += 1
        else:
            by_step[step] = numbers | {"step": step}
    if num_bad:
        lines = "line is not" if num_bad == 1 else "lines are not"
        notes.append(f"{num_bad} {lines} a record of a step in {path.name}, left out")
    if not by_step:
        notes.append(f"{path.name} has no step yet: no curves and no times")
    return [by_step[step] for step in sorted(by_step)]


def is_number(x: Any) -> bool:
    """Returns whether x is a finite number, which can be drawn."""
    return isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x)


def _read_mapping(path: pathlib.Path, notes: list[str]) -> Mapping[str, Any]:
    if not path.is_file():
        if path.name == run_file.FILE:
            notes.append(f"{path.name} is missing: the settings of the run are not known")
        return {}
    try:
        mapping = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        notes.append(f"{path.name} cannot be read: {error}")
        return {}
    if not isinstance(mapping, dict):
        notes.append(f"{path.name} cannot be read: it holds no names and values")
        return {}
    return mapping


def _add_log(run: Run, path: pathlib.Path) -> None:
    """Adds the groups and prompts of one step to `run`."""
    rows = _columns(path, (*SMALL, *BELIEF))
    match = re.fullmatch(r"step_(\d+)", path.stem)
    if not match:
        raise ValueError("no number of a step in its name")
    step = int(match[1])
    correct = np.array(rows["correct"], np.float64)  # null is NaN: not judged
    groups = []
    for members in rows_of_groups(rows).values():
        first, judged = members[0], [i for i in members if np.isfinite(correct[i])]
        wrong = [i for i in judged if correct[i] <= 0.5]
        belief = [math.nan if rows[name][first] is None else rows[name][first] for name in BELIEF]
        uid = str(rows["uid"][first])
        # All visits share one Prompt, so that its uid is one string in memory.
        prompt = run.prompts.get(uid) or _prompt(path, rows, first)
        num_right = len(judged) - len(wrong)
        group = Group(step, prompt.uid, num_right, len(judged), *map(float, belief))
        groups.append((prompt, group, wrong))
    # Anything above may have raised, so `run` changes only here: a file counts completely or not at all.
    for prompt, group, wrong in groups:
        prompt = run.prompts.setdefault(prompt.uid, prompt)
        prompt.visits.append(group)
        texts = (str(rows["extracted"][i])[:LONGEST_WRONG] for i in wrong)
        prompt.wrong.update(map(sys.intern, texts))
        run.groups.append(group)
    run.logs[step] = path


def _prompt(path: pathlib.Path, rows: Columns, row: int) -> Prompt:
    fields = json.loads(rows["metadata"][row] or "{}")
    if not isinstance(fields, dict):
        fields = {}
    return Prompt(
        uid=str(rows["uid"][row]),
        gold=str(rows["gold"][row]),
        kind=str(rows["kind"][row] or ""),
        fields={name: fields[name] for name in FIELDS if name in fields},
        where=(path, row),
    )


def _columns(path: PathLike, names: Iterable[str]) -> Columns:
    """Returns columns as lists; a column that the file lacks is all None.

    Raises:
        ValueError: the file is not readable, or lacks a column of `REQUIRED`.
    """
    try:
        table = rollout_log.read(path, [*REQUIRED, *names])
    except (ValueError, OSError) as error:
        raise ValueError(f"no parquet file: {error.__cause__ or error}") from error
    if lacking := [name for name in REQUIRED if name not in table]:
        raise ValueError(f"no column {lacking[0]!r}")
    nothing = [None] * len(table["uid"])
    return {name: table.get(name, nothing) for name in names}


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:80]


# ------------------------------------------------------------------------------ of a log
def rows_of_groups(rows: Columns) -> dict[Any, list[int]]:
    """Returns the rows of each group of a step, by the group's number, or its uid if it has no number."""
    by_group = collections.defaultdict(list)
    for row, (number, uid) in enumerate(zip(rows["group"], rows["uid"], strict=True)):
        by_group[uid if number is None else number].append(row)
    return by_group


def questions(run: Run, prompts: Iterable[Prompt]) -> dict[str, str]:
    """Returns the prompts' questions, by uid, as the model was first asked them."""
    by_path = collections.defaultdict(list)
    for prompt in prompts:
        by_path[prompt.where[0]].append(prompt)
    by_uid = {}
    for path, asked in by_path.items():
        column = run.texts(path, ("prompt",))["prompt"]
        for prompt in asked:
            by_uid[prompt.uid] = question(column[prompt.where[1]]) if column else ""
    return by_uid


def question(text: str | None) -> str:
    """Returns the user's last turn without the special tokens of the chat template and of images."""
    turn = _LAST_USER_TURN.match(text or "")
    return _SPECIAL.sub("", turn[1] if turn else text or "").strip()
