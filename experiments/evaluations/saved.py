"""The answers that other programs have made, or another evaluation."""

import collections
import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.evaluations import answers
from experiments.evaluations.plan import Plan

_TEXT = ("text", "response")  # names of the column


@dataclasses.dataclass(frozen=True)
class Saved:
    """The answers to one benchmark, as `answers.Store` has them."""

    answers: Mapping[answers.Key, answers.Answer]


def read(path: str, plans: Sequence[Plan]) -> dict[str, Saved]:
    """Returns the answers in a file, or in all files of a directory, by benchmark.

    A row has the item's `uid` and the `text` (or `response`), and may have `sample`, its number;
    without one the rows of an item are counted.

    Raises:
      ValueError: a column is missing, answers are of unknown items, or too many.
    """
    rows = [_saved(file, row) for file in _files(path) for row in answers.read(file)]
    _check_prompts(path, plans)
    known = {item.uid for plan in plans for item in plan.items}
    unknown = [row["uid"] for row in rows if row["uid"] not in known]
    if unknown:
        raise ValueError(
            f"--answers={path}: {len(unknown)} of {len(rows)} answers are of items that the "
            f"benchmarks' files do not have: {answers.some(unknown)}"
        )
    found = _counted(path, rows)
    wanted = {key for plan in plans for key in plan.keys}
    if extra := sorted(found.keys() - wanted):
        raise ValueError(
            f"--answers={path}: {len(extra)} answers are beyond the number that the protocol has, "
            f"such as {extra[0][0]}, sample {extra[0][1]}: remove them, or set "
            "sampling.num_samples"
        )
    return {
        plan.name: Saved({key: found[key] for key in plan.keys if key in found})
        for plan in plans
    }


def _check_prompts(path: str, plans: Sequence[Plan]) -> None:
    """Raises ValueError if one answer would stand for two different prompts."""
    prompts = {}
    for plan in plans:
        for item in plan.asked:
            first = prompts.setdefault(item.uid, (plan.name, item.question))
            if first[1] != item.question:
                raise ValueError(
                    f"--answers={path}: {first[0]} and {plan.name} ask {item.uid} "
                    "differently: score them one by one"
                )


def _files(path: str) -> list[pathlib.Path]:
    root = pathlib.Path(path)
    files = [root]
    if root.is_dir():  # of an evaluation, or of files with any names
        files = sorted(root.glob(f"*/{answers.NAME}")) or sorted(root.iterdir())
        files = [file for file in files if file.suffix in (".jsonl", ".parquet")]
    if not files or not all(file.is_file() for file in files):
        raise ValueError(f"--answers={path} is no file or directory of answers")
    return files


def _saved(file: pathlib.Path, row: Any) -> dict[str, Any]:
    """Returns uid, text and sample of a row of somebody's file."""
    found = row if isinstance(row, Mapping) else {}
    text = next((found[name] for name in _TEXT if name in found), None)
    if not isinstance(found.get("uid"), str) or not isinstance(text, str):
        raise ValueError(
            f"{file}: a row needs the texts uid and text (or response): {str(row)[:100]}"
        )
    if not isinstance(found.get("sample"), int | None):
        raise ValueError(f"{file}: sample={found['sample']!r} is no whole number")
    optional = {name: found.get(name) for name in ("num_tokens", "finished")}
    return {"uid": found["uid"], "sample": found.get("sample"), "text": text} | optional


def _counted(
    path: str, rows: Sequence[Mapping[str, Any]]
) -> dict[answers.Key, answers.Answer]:
    """Returns the answers by key; none may be there twice."""
    seen, found, doubled = collections.Counter(), {}, []
    for row in rows:
        sample = seen[row["uid"]] if row["sample"] is None else row["sample"]
        seen[row["uid"]] += 1
        answer = answers.Answer(**{**row, "sample": sample})
        if answer.key in found:
            doubled.append(f"{answer.uid}, sample {sample}")
        found[answer.key] = answer
    if doubled:
        raise ValueError(
            f"--answers={path}: {len(doubled)} answers are there twice: {answers.some(doubled)}"
        )
    return found
