"""Answers on disk: an evaluation's own, saved as they come, and those of other programs.

A file has one JSON line for each answer. A line is appended as soon as its answer is there, so a process
that is killed loses at most the line that it was writing.
"""

import collections
import dataclasses
import json
import os
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.evals.benchmarks import BENCHMARKS
from experiments.evals.tasks import Task

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
        for number, row in enumerate(_read_rows(self._path), 1):
            try:
                answer = Answer(**row)
            except TypeError as error:
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
    said = (
        f"{task.name}: {len(missing)} of {len(task.keys)} answers are missing, of "
        f"{_first_few(missing)}"
    )
    if not allow:
        raise ValueError(
            f"{said}: complete them (a server is asked again by the same command), or count "
            "them wrong by --allow_missing"
        )
    print(f"{said}; they count as wrong")


# ------------------------------------------------------------------------------ of other programs
def read_saved(path: str, tasks: Sequence[Task]) -> dict[str, dict[Key, Answer]]:
    """Returns the answers in a file, or in all files of a directory, by benchmark.

    A row has the item's `uid` and the `text` (or `response`), and may have `sample`, its number;
    without it the rows of an item are numbered. Answers to other items are left out.

    Raises:
        ValueError: a column is missing, an answer is there twice, or answers are of unknown items or
            more than the protocol has.
    """
    rows = [_checked(file, row) for file in _files(path) for row in _read_rows(file)]
    _check_prompts(path, tasks)
    found = _numbered(path, _asked(path, tasks, rows))
    wanted = {key for task in tasks for key in task.keys}
    if extra := sorted(found.keys() - wanted):
        raise ValueError(
            f"--answers={path}: {len(extra)} answers are beyond the number that the protocol has, "
            f"such as {extra[0][0]}, sample {extra[0][1]}: remove them, or set "
            "sampling.num_samples"
        )
    return {task.name: {key: found[key] for key in task.keys if key in found} for task in tasks}


def _files(path: str) -> list[pathlib.Path]:
    """Returns one file, the answers of another evaluation, or all files of a directory."""
    root = pathlib.Path(path)
    files = [root]
    if (root / NAME).is_file():  # next to it, an evaluation has the same answers with its decisions
        files = [root / NAME]
    elif root.is_dir():
        # Of an evaluation; the raw replies of its server are in a file of the same name.
        kept = [f for f in root.glob(f"*/{NAME}") if f.parent.name != REPLIES]
        files = sorted(kept) or sorted(root.iterdir())
        files = [file for file in files if file.suffix in (".jsonl", ".parquet")]
    if not files or not all(file.is_file() for file in files):
        raise ValueError(f"--answers={path} is no file or directory of answers")
    return files


def _read_rows(file: pathlib.Path) -> list[Any]:
    """Returns the rows of a .jsonl or .parquet file; raises ValueError if it cannot be read."""
    if file.suffix == ".parquet":
        from pyarrow import parquet

        try:
            return parquet.read_table(file).to_pylist()
        except (ValueError, OSError) as error:  # pyarrow's errors are of these
            raise ValueError(f"{file} cannot be read: {error}") from error
    rows = []
    for number, line in enumerate(file.read_text("utf-8-sig").split("\n"), 1):
        try:
            rows += [json.loads(line)] if line.strip() else []
        except ValueError as error:
            raise ValueError(f"{file}, line {number} is no JSON: {error}") from error
    return rows


def _checked(file: pathlib.Path, row: Any) -> dict[str, Any]:
    """Returns the fields of an `Answer` from a row of another program's file; sample may be None."""
    found = row if isinstance(row, Mapping) else {}
    text = found.get("text", found.get("response"))
    if not isinstance(found.get("uid"), str) or not isinstance(text, str):
        raise ValueError(
            f"{file}: a row needs the texts uid and text (or response): {str(row)[:100]}"
        )
    if not isinstance(found.get("sample"), int | None):
        raise ValueError(f"{file}: sample={found['sample']!r} is no whole number")
    optional = {name: found.get(name) for name in ("num_tokens", "finished")}
    return {"uid": found["uid"], "sample": found.get("sample"), "text": text} | optional


def _asked(
    path: str, tasks: Sequence[Task], rows: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Returns the answers to the items of the tasks, and prints the number of others.

    Raises:
        ValueError: answers are of no benchmark, or of items that a benchmark's whole file lacks.
    """
    items = {item.uid for task in tasks for item in task.items}
    names = {_benchmark(uid) for uid in items}
    others = [row["uid"] for row in rows if row["uid"] not in items]
    unasked = BENCHMARKS.keys() - names
    elsewhere = [uid for uid in others if _benchmark(uid) in unasked]
    beyond = [uid for uid in others if _benchmark(uid) not in unasked]
    # A task has no items beyond `num_items`: only their file tells them from unknown ones.
    whole = {i.uid for t in tasks for i in t.benchmark.read(t.path)} if beyond else set()
    if unknown := [uid for uid in beyond if uid not in whole]:
        raise ValueError(
            f"--answers={path}: {len(unknown)} of {len(rows)} answers are of items that the "
            f"benchmarks' files do not have: {_first_few(unknown)}"
        )
    left_out = {"benchmarks that are not asked": elsewhere, "items beyond num_items": beyond}
    for why, uids in left_out.items():
        if uids:
            print(f"--answers={path}: {len(uids)} answers left out, of {why}: {_first_few(uids)}")
    return [row for row in rows if row["uid"] in items]


def _benchmark(uid: str) -> str:
    """Returns the name of the benchmark that an item is of, under whichever scorer."""
    return uid.partition(":")[0]


def _check_prompts(path: str, tasks: Sequence[Task]) -> None:
    """Raises ValueError if one answer would belong to two different prompts."""
    prompts = {}
    for task in tasks:
        for item in task.asked:
            first = prompts.setdefault(item.uid, (task.name, item.question))
            if first[1] != item.question:
                raise ValueError(
                    f"--answers={path}: {first[0]} and {task.name} ask {item.uid} "
                    "differently: score them one by one"
                )


def _numbered(path: str, rows: Sequence[Mapping[str, Any]]) -> dict[Key, Answer]:
    """Returns the answers by key; rows of an item without a sample are counted."""
    seen, found, doubled = collections.Counter(), {}, []
    for row in rows:
        sample = seen[row["uid"]] if row["sample"] is None else row["sample"]
        seen[row["uid"]] += 1
        named: dict[str, Any] = {**row, "sample": sample}
        answer = Answer(**named)
        if answer.key in found:
            doubled.append(f"{answer.uid}, sample {sample}")
        found[answer.key] = answer
    if doubled:
        raise ValueError(
            f"--answers={path}: {len(doubled)} answers are there twice: {_first_few(doubled)}"
        )
    return found


def _first_few(names: Sequence[str]) -> str:
    """Returns the first five of many names."""
    shown = list(dict.fromkeys(names))
    return ", ".join(shown[:5]) + (" ..." if len(shown) > 5 else "")
