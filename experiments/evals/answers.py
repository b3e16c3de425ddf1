"""Answers on disk: an evaluation's own, saved as they come, and those of other programs.

A file has one JSON line for each answer. A line is appended as soon as its answer is there, so a process
that is killed loses at most the line that it was writing.
"""

import collections
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from experiments.evals.tasks import Task
from vade_jax.data import row_files

Key = tuple[str, int]  # uid of the item, number of the sample
NAME = "answers.jsonl"
REPLIES = "replies"  # directory of the servers' raw replies


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer of a policy; a field is None if the program that made the answer did not save it."""

    uid: str
    sample: int
    text: str
    num_tokens: int | None = None
    finished: bool | None = None  # False: cut off at the length limit

    @property
    def key(self) -> Key:
        return self.uid, self.sample


class Store(dict[Key, Answer]):
    """The answers to one task, kept in a file.

    A last line that was cut off is dropped, and its answer made again.

    Raises:
        ValueError: a line within the file is no answer.
    """

    def __init__(self, path: str | os.PathLike):
        super().__init__()
        self._path = pathlib.Path(path)
        if not self._path.exists():
            return
        before, newline, cut_off = self._path.read_bytes().rpartition(b"\n")
        if cut_off:
            os.truncate(self._path, len(before + newline))
        for number, line in enumerate(before.split(b"\n") if before else [], 1):
            try:
                answer = Answer(**json.loads(line))
            except (ValueError, TypeError) as error:
                raise ValueError(f"{self._path}, line {number} is no answer: {error}") from error
            self[answer.key] = answer

    def add(self, answers: Iterable[Answer]) -> None:
        """Appends the answers that are missing in the file."""
        new = [answer for answer in answers if answer.key not in self]
        lines = [json.dumps(dataclasses.asdict(answer)) + "\n" for answer in new]
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write("".join(lines))
        self.update((answer.key, answer) for answer in new)


def check_whole(task: Task, answers: Mapping[Key, Answer], allow: bool) -> None:
    """Raises ValueError if answers are missing, or with `allow` says how many."""
    missing = [uid for uid, sample in task.keys if (uid, sample) not in answers]
    if not missing:
        return
    message = (
        f"{task.name}: {len(missing)} of {len(task.keys)} answers are missing, of "
        f"{_first_few(missing)}"
    )
    if not allow:
        raise ValueError(
            f"{message}: complete them (a server is asked again by the same command), or count "
            "them wrong by --allow_missing"
        )
    print(f"{message}; they count as wrong")


# ------------------------------------------------------------------------------ of other programs
def read_saved(path: str, tasks: Sequence[Task]) -> dict[str, dict[Key, Answer]]:
    """Returns the answers in a file, or in all files of a directory, by benchmark.

    A row has the item's `uid` and the `text` (or `response`), and may have `sample`, its number;
    without it the rows of an item are numbered. Answers to other items are left out, and counted.

    Raises:
        ValueError: a file cannot be read, an answer is there twice or beyond the protocol's number, or one
            answer would belong to two prompts.
    """
    answers, others, seen = {}, [], collections.Counter()
    uids = {}
    for task in tasks:
        for item in task.asked:
            if uids.setdefault(item.uid, item.question) != item.question:
                raise ValueError(
                    f"--answers={path}: {task.name} asks {item.uid} in other words than another "
                    "benchmark: score them one by one"
                )
    for file in _files(path):
        for row in _rows(file):
            if row["uid"] not in uids:
                others.append(row["uid"])
                continue
            sample = seen[row["uid"]] if row["sample"] is None else row["sample"]
            seen[row["uid"]] += 1
            fields: dict[str, Any] = row | {"sample": sample}
            answer = Answer(**fields)
            if answer.key in answers:
                raise ValueError(
                    f"{file}: the answer {answer.uid}, sample {sample}, is there twice"
                )
            answers[answer.key] = answer
    if others:
        print(
            f"--answers={path}: {len(others)} answers left out, of other items: {_first_few(others)}"
        )
    by_task = {task.name: {k: answers[k] for k in task.keys if k in answers} for task in tasks}
    if extra := sorted(answers.keys() - {key for found in by_task.values() for key in found}):
        raise ValueError(
            f"--answers={path}: {len(extra)} answers are beyond the number that the protocol has, "
            f"such as {extra[0][0]}, sample {extra[0][1]}: remove them, or set "
            "sampling.num_samples"
        )
    return by_task


def _files(path: str) -> list[pathlib.Path]:
    """Returns one file, the answers of another evaluation, or all files of a directory."""
    root = pathlib.Path(path)
    files = [root]
    if (root / NAME).is_file():  # next to it, an evaluation has the same answers with its decisions
        files = [root / NAME]
    elif root.is_dir():
        # Of an evaluation; the raw replies of its server are in a file of the same name.
        kept = [f for f in root.glob(f"*/{NAME}") if f.parent.name != REPLIES]
        files = sorted(kept) or [f for f in sorted(root.iterdir()) if row_files.format_of(f)]
    if not files or not all(file.is_file() for file in files):
        raise ValueError(f"--answers={path} is no file or directory of answers")
    return files


def _rows(file: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Yields the fields of an `Answer` of each row; its sample may be None."""
    table = row_files.open_files([file])
    for index in range(table.size):
        try:
            row = table.read(index)
            answer = {"uid": row["uid"], "text": row["text"] if "text" in row else row["response"]}
        except (ValueError, TypeError, LookupError) as error:
            raise ValueError(f"{file}: row {index} has no uid and text: {error!r}") from error
        answer |= {name: row.get(name) for name in ("sample", "num_tokens", "finished")}
        if not isinstance(answer["uid"], str) or not isinstance(answer["text"], str):
            raise ValueError(f"{file}: uid and text of row {index} have to be texts")
        if not isinstance(answer["sample"], int | None):
            raise ValueError(f"{file}: sample={answer['sample']!r} is no whole number")
        yield answer


def _first_few(names: Sequence[str]) -> str:
    """Returns the first five of many names."""
    shown = list(dict.fromkeys(names))
    return ", ".join(shown[:5]) + (" ..." if len(shown) > 5 else "")
