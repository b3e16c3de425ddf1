"""Answers on disk, a JSON line each, saved as they come."""

import dataclasses
import os
from collections.abc import Mapping

from experiments.evals import store
from experiments.evals.tasks import Task

Key = tuple[str, int]  # uid of the item, number of the sample
NAME = "answers.jsonl"


@dataclasses.dataclass(frozen=True)
class Answer:
    """One answer of a policy; a field is None if a server did not tell it."""

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
