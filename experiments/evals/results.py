"""Scores answers: every decision is saved, and a JSON file sums up each benchmark."""

import collections
import dataclasses
import json
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tqdm

from experiments.evals import decisions, stats
from experiments.evals.answers import Answer, Key
from experiments.evals.chat import Chat
from experiments.evals.tasks import Task
from vade_jax import atomic

ITEMS = "items.jsonl"  # every answer with its decision
RESULT = "result.json"


@dataclasses.dataclass(frozen=True)
class Result:
    """The answers of one policy to one benchmark, scored: G answers to each of M items."""

    label: str  # of the policy, a row of a table
    benchmark: str  # a key of `BENCHMARKS`
    profile: str  # "paper" or "cot"
    uids: tuple[str, ...]  # of the M items
    correct_MG: np.ndarray  # bool
    extracted: Sequence[Sequence[str | None]]  # [M][G], None where nothing could be extracted
    groups: Sequence[Mapping[str, Sequence[str]]]  # of each item: breakdown -> the item's values
    clusters: Sequence[str]  # what each item has in common with others, for standard errors
    # Sampling, judge, prompt: whatever another evaluation must share to be compared.
    settings: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # Such as "judge_failed": answers scored wrong because they have no verdict.
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)


# ------------------------------------------------------------------------------ scoring
def score(
    task: Task,
    answers: Mapping[Key, Answer],
    judge: Chat | None,
    directory: str,
    label: str,
    settings: Mapping[str, Any],
) -> Result:
    """Returns the result of a task; writes it and `items.jsonl` (a line for each answer) to `directory`.

    Without a judge, rules alone decide. Missing answers count as wrong.

    Raises:
        ServerLost: the judge's server is gone; its replies are kept.
    """
    pairs = [
        (item, answers.get((item.uid, g))) for item in task.items for g in range(task.num_samples)
    ]
    if judge is None:
        decide, each = decisions.by_rules(task.benchmark, task.profile), map
    else:
        decide, each = decisions.by_judge(task.benchmark, task.profile, judge), judge.map

    def decide_pair(pair):
        item, answer = pair
        return decisions.MISSING if answer is None else decide(item, answer.text)

    bar = tqdm.tqdm(each(decide_pair, pairs), desc=f"scoring {task.name}", total=len(pairs))
    decided = list(bar)
    _write_items(os.path.join(directory, ITEMS), task, pairs, decided)
    outcomes = collections.Counter(decision.outcome for decision in decided)
    counts = {str(name): outcomes[name] for name in decisions.Failure}
    counts["cut_off"] = sum(answer is not None and answer.finished is False for _, answer in pairs)
    starts = range(0, len(decided), task.num_samples)
    by_item = [decided[i : i + task.num_samples] for i in starts]
    result = Result(
        label=label,
        benchmark=task.name,
        profile=task.profile,
        uids=tuple(item.uid for item in task.items),
        correct_MG=np.array([[decision.correct for decision in each] for each in by_item], bool),
        extracted=[[decision.extracted for decision in each] for each in by_item],
        groups=[task.benchmark.groups(item) for item in task.items],
        clusters=[task.benchmark.cluster(item) for item in task.items],
        settings=settings,
        counts=counts,
    )
    save(os.path.join(directory, RESULT), result)
    return result


def _write_items(path, task, pairs, decided) -> None:
    with atomic.replacing(path) as temporary, temporary.open("w") as file:
        for (uid, sample), (item, answer), decision in zip(task.keys, pairs, decided, strict=True):
            row = {
                "uid": uid,
                "sample": sample,
                "gold": item.answer,
                "text": answer and answer.text,
                "extracted": decision.extracted,
                "correct": bool(decision.correct),
                "outcome": decision.outcome,
                "judge": list(decision.replies),
                "num_tokens": answer and answer.num_tokens,
                "finished": answer and answer.finished,
            }
            file.write(json.dumps(row) + "\n")


# ------------------------------------------------------------------------------ summary and files
def summary(result: Result) -> dict[str, Any]:
    """Returns accuracy, its standard error, pass@G, majority@G and the breakdowns.

    The error is None where all items are of one cluster: JSON has no NaN.
    """
    num_items, num_samples = np.shape(result.correct_MG)
    error = stats.standard_error(result.correct_MG, result.clusters)
    return {
        "num_items": num_items,
        "num_samples": num_samples,
        "accuracy": stats.average(result.correct_MG),
        "standard_error": None if math.isnan(error) else error,
        "pass": stats.pass_at_k(result.correct_MG, num_samples),
        "majority": stats.majority(result.extracted, result.correct_MG),
        "breakdown": stats.by_group(result.correct_MG, result.groups),
    }


def save(path: str | os.PathLike, result: Result) -> None:
    """Writes the result, every item of it, and its summary as JSON."""
    fields = dict(vars(result), correct_MG=np.asarray(result.correct_MG).astype(int).tolist())
    content = {"summary": summary(result), **fields}
    atomic.write_text(path, json.dumps(content, indent=1) + "\n")


def load(path: str | os.PathLike) -> Result:
    """Reads what `save` wrote; raises ValueError if the file holds no result."""
    try:
        fields = json.loads(pathlib.Path(path).read_text("utf-8"))
        fields = {f.name: fields[f.name] for f in dataclasses.fields(Result)}
        fields["uids"] = tuple(fields["uids"])
        fields["correct_MG"] = np.array(fields["correct_MG"], bool)
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise ValueError(f"{path} holds no result of a benchmark: {error!r}") from error
    return Result(**fields)


def load_all(directory: str) -> dict[str, Result]:
    """Returns the results of an evaluation by benchmark, from its directory.

    Raises:
        ValueError: the directory holds none.
    """
    paths = sorted(pathlib.Path(directory).glob(f"*/{RESULT}"))
    if not paths:
        raise ValueError(
            f"--compare={directory} holds no results (*/{RESULT}): give the --workdir of "
            "another evaluation"
        )
    loaded = [load(path) for path in paths]
    return {result.benchmark: result for result in loaded}
