"""Replies of models, saved immediately, so that interrupted work continues where it stopped."""

import dataclasses
import json
import os
import pathlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
Key = tuple[str, int]  # uid of the item, number of the sample
NAME = "answers.jsonl"


class Store(dict[K, V]):
    """Values by key, kept in a file with a row of JSON in each line; threads may share it.

    A truncated last line, which a killed process leaves, is removed.

    Args:
        path: of the file.
        read: row -> its key and value.

    Raises:
        ValueError: another line cannot be read.
    """

    def __init__(self, path: str | os.PathLike, read: Callable[[Any], tuple[K, V]]):
        super().__init__()
        self._path, self._read, self._lock = pathlib.Path(path), read, threading.Lock()
        if not self._path.exists():
            return
        before, newline, cut_off = self._path.read_bytes().rpartition(b"\n")
        if cut_off:
            os.truncate(self._path, len(before + newline))
        for number, line in enumerate(before.split(b"\n") if newline else [], 1):
            try:
                key, self[key] = read(json.loads(line))
            except (ValueError, TypeError, LookupError) as error:
                raise ValueError(f"{path}, line {number} is damaged: {error!r}") from error

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Appends the rows whose keys are missing."""
        with self._lock:
            new = [row for row in rows if self._read(row)[0] not in self]
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:
                file.write("".join(json.dumps(row) + "\n" for row in new))
            self.update(map(self._read, new))


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer of a policy; fields that a server does not report are None."""

    uid: str
    sample: int
    text: str
    num_tokens: int | None = None
    finished: bool | None = None  # False: cut off at the length limit


Answers = Store[Key, Answer]  # the answers to one task


def open_store(path: str | os.PathLike) -> Answers:
    """Returns the answers to one task, which are kept in a file."""
    return Answers(path, lambda row: ((row["uid"], row["sample"]), Answer(**row)))
