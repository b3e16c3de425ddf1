"""The rollout logs of a run as groups: which prompt was asked when, and how often it was right.

Only the small columns of all steps are read; the text of prompts and answers when it is asked for.
"""

import collections
import dataclasses
import functools
import json
import math
import os
import pathlib
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from vade_jax.store import rollout_log

PathLike = str | os.PathLike[str]

REQUIRED = ("uid", "correct")
SMALL = (*REQUIRED, "group", "gold", "kind", "extracted", "metadata")
BELIEF = ("alpha", "beta", "p_drawn")
TEXT = (
    *("prompt", "answer", "reason", "reward"),
    *("length", "finished", "round", "trained"),
)
FIELDS = ("family", "subset", "level", "stratum", "right_answer", "variant")
_LONGEST_WRONG = 60  # characters of a wrong answer that is counted
_SPECIAL = re.compile(r"<\|[^|<>]*\|>")
_LAST_USER_TURN = re.compile(
    r".*<\|im_start\|>user\n(.*?)(?:<\|im_end\|>|$)", re.DOTALL
)


class Group(NamedTuple):
    """One prompt at one step; NaN: the log does not say."""

    step: int
    uid: str
    right: int
    count: int  # answers that were judged
    alpha: float  # the posterior before the step
    beta: float
    drawn: float

    @property
    def is_mixed(self) -> bool:
        return 0 < self.right < self.count


@dataclasses.dataclass
class Prompt:
    """A question of the data that was asked at least once."""

    uid: str
    gold: str
    kind: str
    fields: Mapping[str, Any]  # of the item's metadata, `FIELDS`
    where: tuple[pathlib.Path, int]  # a file and a row that have its text
    visits: list[Group] = dataclasses.field(default_factory=list)
    wrong: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    @property
    def rollouts(self) -> int:
        return sum(group.count for group in self.visits)

    @functools.cached_property
    def subset(self) -> str:
        """Family or subset and level, else the kind of answer."""
        return rollout_log.subset(self.fields) or self.kind or "all"

    @functools.cached_property
    def variant(self) -> str:
        """What DIVA changed in an item of the data, "" where this is one."""
        change = str(self.fields.get("variant") or "")
        return change if change and self.uid.endswith(f" {change}") else ""

    @property
    def source(self) -> str:
        """The uid of the item, a variant's too."""
        return self.uid.removesuffix(f" {self.variant}") if self.variant else self.uid


@dataclasses.dataclass(frozen=True)
class Log:
    """What the rollout logs hold."""

    groups: list[Group]  # by step
    prompts: dict[str, Prompt]
    paths: dict[int, pathlib.Path]  # by step, of the readable files
    notes: list[str]  # what could not be read

    def texts(self, path: pathlib.Path, names: Iterable[str]) -> dict[str, list[Any]]:
        """Returns `columns`; all empty, with a note, where they cannot be read."""
        try:
            return columns(path, names)
        except ValueError as error:
            note = f"texts not readable: {path.name} ({_short(error)})"
            if note not in self.notes:
                self.notes.append(note)
            return {name: [] for name in names}


def read(workdir: PathLike, notes: list[str] | None = None) -> Log:
    """Returns the groups of a run; files that cannot be read are named in the notes."""
    log, broken = Log([], {}, {}, [] if notes is None else notes), []
    for path in sorted((pathlib.Path(workdir) / "rollouts").glob("step_*.parquet")):
        found = re.fullmatch(r"step_(\d+)", path.stem)
        try:
            rows = columns(path, (*SMALL, *BELIEF))
            _add(log, int(found[1]) if found else -1, path, rows)
        except (ValueError, TypeError) as error:
            broken.append(f"{path.name} ({_short(error)})")
    if broken:
        more = f" and {len(broken) - 3} more" if len(broken) > 3 else ""
        log.notes.append(f"rollouts not readable: {', '.join(broken[:3])}{more}")
    if not log.groups:
        log.notes.append(
            "no rollout logs: no prompts, no answers, no map of the posterior"
        )
    log.groups.sort(key=lambda group: group.step)
    return log


def columns(path: PathLike, names: Iterable[str]) -> dict[str, list[Any]]:
    """Returns columns as lists; one that the file does not have is all None.

    Raises:
        ValueError: the file is not readable, or lacks one of `REQUIRED`.
    """
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            there = set(file.schema_arrow.names)
            if lacking := [name for name in REQUIRED if name not in there]:
                raise ValueError(f"no column {lacking[0]!r}")
            table = file.read(columns=[name for name in names if name in there])
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"no parquet file: {error}") from error
    nothing = [None] * table.num_rows
    return {**dict.fromkeys(names, nothing), **table.to_pydict()}


def questions(log: Log, prompts: Iterable[Prompt]) -> dict[str, str]:
    """Returns the questions, by uid, as the model was first asked them."""
    by_path = collections.defaultdict(list)
    for prompt in prompts:
        by_path[prompt.where[0]].append(prompt)
    found = {}
    for path, wanted in by_path.items():
        column = log.texts(path, ("prompt",))["prompt"]
        for prompt in wanted:
            found[prompt.uid] = question(column[prompt.where[1]]) if column else ""
    return found


def question(text: str | None) -> str:
    """Returns the last turn of the user without the marks of the chat and of images."""
    turn = _LAST_USER_TURN.match(text or "")
    return _SPECIAL.sub("", turn[1] if turn else text or "").strip()


def rows_of_groups(rows: Mapping[str, list[Any]]) -> dict[Any, list[int]]:
    """Returns the rows of each group of a step, by its number (its uid where it has none)."""
    found = collections.defaultdict(list)
    keys = zip(rows["group"], rows["uid"], strict=True)
    for row, (number, uid) in enumerate(keys):
        found[uid if number is None else number].append(row)
    return found


def _add(
    log: Log, step: int, path: pathlib.Path, rows: Mapping[str, list[Any]]
) -> None:
    if step < 0:
        raise ValueError("no number of a step in its name")
    correct = np.array(rows["correct"], np.float64).tolist()  # null is NaN: not judged
    made = []
    for members in rows_of_groups(rows).values():
        first, judged = members[0], [i for i in members if math.isfinite(correct[i])]
        belief = (_number(rows[name][first]) for name in BELIEF)
        right = int(sum(correct[i] > 0.5 for i in judged))
        group = Group(step, str(rows["uid"][first]), right, len(judged), *belief)
        made.append((group, first, [i for i in judged if correct[i] <= 0.5]))
    for group, first, wrong in made:
        prompt = log.prompts.get(group.uid) or _prompt(path, rows, first)
        group = group._replace(uid=prompt.uid)  # one text for all visits
        prompt.visits.append(group)
        said = (str(rows["extracted"][i])[:_LONGEST_WRONG] for i in wrong)
        prompt.wrong.update(map(sys.intern, said))
        log.prompts[group.uid] = prompt
        log.groups.append(group)
    log.paths[step] = path


def _prompt(path: pathlib.Path, rows: Mapping[str, list[Any]], row: int) -> Prompt:
    fields = json.loads(rows["metadata"][row] or "{}")
    return Prompt(
        uid=str(rows["uid"][row]),
        gold=str(rows["gold"][row]),
        kind=str(rows["kind"][row] or ""),
        fields={
            k: fields[k] for k in FIELDS if isinstance(fields, dict) and k in fields
        },
        where=(path, row),
    )


def _number(x: Any) -> float:
    return math.nan if x is None else float(x)


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:80]
