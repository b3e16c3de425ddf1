"""Answers on disk: one JSON line each, appended as they come, so that a kill loses little."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from experiments.evaluations.plan import Plan

Key = tuple[str, int]  # uid of the item, number of the sample
NAME = "answers.jsonl"
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer of a policy; None where whoever made it does not say."""

    uid: str
    sample: int
    text: str
    num_tokens: int | None = None
    finished: bool | None = None  # False: cut off at the length limit

    @property
    def key(self) -> Key:
        return self.uid, self.sample


class Store:
    """The answers to one benchmark in a file; a line that a kill cut off is made again.

    Raises:
      ValueError: a line within the file is no answer.
    """

    def __init__(self, path: str | os.PathLike):
        self._path = pathlib.Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.answers: dict[Key, Answer] = {}
        if self._path.exists():
            whole = self._path.read_bytes().rpartition(b"\n")
            if whole[2]:
                os.truncate(self._path, len(whole[0] + whole[1]))
            self.answers = {a.key: a for a in _lines(self._path)}

    def add(self, answers: Iterable[Answer]) -> None:
        """Appends those that are not there yet."""
        new = [answer for answer in answers if answer.key not in self.answers]
        lines = [json.dumps(dataclasses.asdict(answer)) + "\n" for answer in new]
        with self._path.open("a") as file:
            file.write("".join(lines))
        self.answers |= {answer.key: answer for answer in new}


def _lines(path: pathlib.Path) -> Iterator[Answer]:
    for number, row in enumerate(read(path), 1):
        try:
            yield Answer(**row)
        except TypeError as error:
            raise ValueError(f"{path}, line {number} is no answer: {error}") from error


def check_whole(plan: Plan, answers: Mapping[Key, Answer], allow: bool) -> None:
    """Raises ValueError if answers are missing, unless that is allowed; then says how many."""
    missing = [uid for uid, sample in plan.keys if (uid, sample) not in answers]
    if not missing:
        return
    said = (
        f"{plan.name}: {len(missing)} of {len(plan.keys)} answers are missing, of "
        f"{some(missing)}"
    )
    if not allow:
        raise ValueError(
            f"{said}: complete them (a server is asked again by the same command), or count "
            "them wrong by --allow_missing"
        )
    print(f"{said}; they count as wrong")


def read(file: pathlib.Path) -> list[dict[str, Any]]:
    """Returns the rows of a .jsonl or .parquet file; raises ValueError if it is none."""
    if file.suffix == ".parquet":
        from pyarrow import parquet

        try:
            return parquet.read_table(file).to_pylist()
        except (ValueError, OSError) as error:  # pyarrow's errors are of these
            raise ValueError(f"{file} cannot be read: {error}") from error
    rows = []
    for number, line in enumerate(file.read_text("utf-8").split("\n"), 1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise ValueError(f"{file}, line {number} is no JSON: {error}") from error
    return rows


def some(names: Sequence[str]) -> str:
    """Returns the first few of many names."""
    shown = list(dict.fromkeys(names))
    more = " ..." if len(shown) > _SHOWN else ""
    return ", ".join(shown[:_SHOWN]) + more
