"""A sample of the rollouts that fits on a page."""

import collections
import random
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jinja2 import utils

from vade_jax.report import groups, run
from vade_jax.report.groups import BELIEF, SMALL, TEXT, Log, Prompt

STEPS = 24  # that are looked into
GROUPS = 600  # at most
EACH = 2  # answers of a group, right and wrong each
LONGEST = 3000  # characters of an answer
SHORT = 200  # characters of what was read out of it, and of the gold
# What would not be seen, or would turn the text around it, is shown by its name.
NAMED = {c: f"[U+{c:04X}]" for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
NAMED |= {c: chr(0x2400 + c) for c in range(32) if chr(c) not in "\t\n\r"}
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
    rows = log.texts(log.paths[step], COLUMNS)
    members = list(groups.rows_of_groups(rows).values())
    random.Random(step).shuffle(members)
    waiting, seen = [], collections.Counter()
    for number, group in enumerate(members):
        prompt = log.prompts[str(rows["uid"][group[0]])]
        waiting.append((seen[prompt.subset], number, group, prompt))
        seen[prompt.subset] += 1
    waiting.sort(key=lambda one: one[:2])
    return [_group(step, number, rows, *one) for _, number, *one in waiting]


def _group(
    step: int,
    number: int,
    rows: dict[str, list[Any]],
    members: Sequence[int],
    prompt: Prompt,
) -> dict[str, Any]:
    first = members[0]
    is_right = lambda i: bool(rows["correct"][i] and rows["correct"][i] > 0.5)
    right = [i for i in members if is_right(i)]
    wrong = [i for i in members if not is_right(i)]
    shown = sorted(_different(rows, right) + _different(rows, wrong))
    return {
        "step": step,
        "number": number,
        "round": _number(rows["round"][first]),
        "uid": prompt.uid,
        # A variant of the same name may have other words each time.
        "question": groups.question(rows["prompt"][first])[:LONGEST]
        if prompt.variant
        else None,
        "right": len(right),
        "count": len(members),
        "belief": [_number(rows[name][first]) for name in BELIEF],
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
        "text": visible(f"{text[:half]} […] {text[-half:]}" if cut else text),
        "cut": cut,
        "extracted": _text(rows["extracted"][i]),
        "reason": _text(rows["reason"][i]),
        "right": right,
        "reward": _number(rows["reward"][i]),
        "length": _number(rows["length"][i]),
        "finished": rows["finished"][i] is not False,
        "trained": rows["trained"][i] is not False,
    }


def shortened(text: str) -> str:
    """Returns a text of a line or two: what is longer ends in an ellipsis."""
    return visible(text if len(text) <= SHORT else f"{text[:SHORT]}…")


def visible(text: str) -> str:
    """Returns a text with `NAMED` characters named."""
    return text.translate(NAMED)


def _text(x: Any) -> str | None:
    return None if x is None else shortened(str(x))


def _number(x: Any) -> float | None:
    return round(x, 3) if run.is_number(x) else None
