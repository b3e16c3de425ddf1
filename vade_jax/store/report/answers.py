"""A sample of the rollouts that fits on a page."""

import collections
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jinja2 import utils

from vade_jax.store.report import groups
from vade_jax.store.report.groups import BELIEF, SMALL, TEXT, Log

STEPS = 24  # that are looked into
GROUPS = 600  # at most
EACH = 2  # answers of a group, right and wrong each
LONGEST = 3000  # characters of an answer
COLUMNS = (*SMALL, *BELIEF, *TEXT)


def sample(log: Log, budget: int) -> tuple[list[dict[str, Any]], int]:
    """Returns groups with some of their answers, by step, and how many answers are in all logs.

    One group a subset in each of `STEPS` steps, then a second one, and so on until `budget`
    characters of JSON are used. The same run always gives the same sample.
    """
    kept: list[dict[str, Any]] = []
    for group in _rounds(log):
        cost = len(utils.htmlsafe_json_dumps(group))
        if cost > budget or len(kept) == GROUPS:
            break
        budget -= cost
        kept.append(group)
    kept.sort(key=lambda group: (group["step"], group["number"]))
    return kept, sum(group.count for group in log.groups)


def _rounds(log: Log) -> Iterable[dict[str, Any]]:
    """Yields groups, evenly over steps and subsets."""
    steps = sorted(log.paths)
    places = np.linspace(0, len(steps) - 1, min(STEPS, len(steps))).round().astype(int)
    queues = [_step(log, steps[i]) for i in np.unique(places)]
    while queues := [queue for queue in queues if queue]:
        for queue in queues:
            yield queue.pop(0)


def _step(log: Log, step: int) -> list[dict[str, Any]]:
    """Returns the groups of a step, each subset's first before anyone's second."""
    rows = groups.columns(log.paths[step], COLUMNS)
    members = list(groups.rows_of_groups(rows).values())
    random.Random(step).shuffle(members)
    waiting, seen = [], collections.Counter()
    for number, group in enumerate(members):
        subset = log.prompts[str(rows["uid"][group[0]])].subset
        waiting.append((seen[subset], number, group))
        seen[subset] += 1
    return [_group(step, number, rows, group) for _, number, group in sorted(waiting)]


def _group(
    step: int, number: int, rows: dict[str, list[Any]], members: Sequence[int]
) -> dict[str, Any]:
    first = members[0]
    is_right = lambda i: bool(rows["correct"][i] and rows["correct"][i] > 0.5)
    right = [i for i in members if is_right(i)]
    wrong = [i for i in members if not is_right(i)]
    shown = sorted(_different(rows, right) + _different(rows, wrong))
    return {
        "step": step,
        "number": number,
        "uid": str(rows["uid"][first]),
        "right": len(right),
        "count": len(members),
        "belief": [_rounded(rows[name][first]) for name in BELIEF],
        "answers": [_answer(rows, i, is_right(i)) for i in shown],
    }


def _different(rows: dict[str, list[Any]], members: Sequence[int]) -> list[int]:
    """Returns a few rows, those with another answer before repetitions."""
    first, again = {}, []
    for i in members:
        if first.setdefault(rows["answer"][i], i) != i:
            again.append(i)
    return [*first.values(), *again][:EACH]


def _answer(rows: dict[str, list[Any]], i: int, right: bool) -> dict[str, Any]:
    text = str(rows["answer"][i] if rows["answer"][i] is not None else "")
    cut = max(0, len(text) - LONGEST)
    half = LONGEST // 2
    return {
        "text": f"{text[:half]} […] {text[-half:]}" if cut else text,
        "cut": cut,
        "extracted": _short(rows["extracted"][i]),
        "reason": rows["reason"][i],
        "right": right,
        "reward": _rounded(rows["reward"][i]),
        "length": rows["length"][i],
        "finished": rows["finished"][i],
        "trained": rows["trained"][i],
    }


def _short(text: Any) -> str | None:
    return None if text is None else str(text)[:200]


def _rounded(x: Any) -> float | None:
    return round(float(x), 3) if x is not None and np.isfinite(x) else None
