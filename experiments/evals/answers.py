"""Answers on disk, a JSON line each: an evaluation's own, saved as they come, and other programs'."""

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.evals import store
from experiments.evals.tasks import Task

Key = tuple[str, int]  # uid of the item, number of the sample
NAME = "answers.jsonl"


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


Store = store.Store[Key, Answer]  # the answers to one task


def open_store(path: str | os.PathLike) -> Store:
    """Returns the answers to one task, which are kept in a file."""
    return Store(path, lambda row: ((row["uid"], row["sample"]), Answer(**row)))


def check_whole(task: Task, answers: Mapping[Key, Answer], allow: bool) -> None:
    """Raises ValueError if answers are missing, or with `allow` says how many."""
    missing = [uid for uid, sample in task.keys if (uid, sample) not in answers]
    if not missing:
        return
    message = (
        f"{task.name}: {len(missing)} of {len(task.keys)} answers are missing, such as to "
        f"{missing[0]}"
    )
    if not allow:
        raise ValueError(
            f"{message}: complete them (a server is asked again by the same command), or count "
            "them wrong by --allow_missing"
        )
    print(f"{message}; they count as wrong")


# ------------------------------------------------------------------------------ of other programs
def read_saved(path: str, tasks: Sequence[Task]) -> dict[str, dict[Key, Answer]]:
    """Returns the answers in a .jsonl file, by benchmark; those to other questions are counted.

    A line has the item's `uid`, the `text`, and `sample`, its number, which is 0 where it is left out.

    Raises:
        ValueError: a line cannot be read, an answer is there twice, or would belong to two prompts.
    """
    try:
        with open(path, encoding="utf-8") as file:
            answers = [_answer(json.loads(line)) for line in file]
        by_key = {answer.key: answer for answer in answers}
    except (OSError, ValueError, TypeError, LookupError) as error:
        raise ValueError(
            f"--answers={path} is no file of JSON lines with uid and text: {error!r}"
        ) from error
    if len(by_key) < len(answers):
        raise ValueError(f"--answers={path} has an answer twice: remove one, or number the samples")
    keys = [key for task in tasks for key in task.keys]
    if len(set(keys)) < len(keys):
        raise ValueError(
            f"--answers={path}: two benchmarks ask one item in other words: score them one by one"
        )
    if num_others := len(by_key.keys() - set(keys)):
        print(f"--answers={path}: {num_others} answers to other questions are left out")
    return {task.name: {k: by_key[k] for k in task.keys if k in by_key} for task in tasks}


def _answer(row: Mapping[str, Any]) -> Answer:
    if not isinstance(row["text"], str):
        raise TypeError(f"{row['text']!r} is not a text")
    sample, num_tokens = row.get("sample", 0), row.get("num_tokens")
    return Answer(row["uid"], sample, row["text"], num_tokens, row.get("finished"))
