"""The prompts and answers that the page shows: lists of prompts, and a sample of rollouts."""

import collections
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jinja2 import utils

from vade_jax.report import curves
from vade_jax.report.run import (
    BELIEF,
    SMALL,
    Columns,
    Group,
    Prompt,
    Run,
    is_number,
    question,
    rows_of_groups,
)

REVISITED = 2  # visits before a prompt is called hopeless or solved
LISTS = {  # name: (title, caption)
    "hopeless": (
        "Never right",
        f"no right answer in {REVISITED} visits or more; the most expensive first",
    ),
    "solved": (
        "Always right",
        f"no wrong answer in the last {REVISITED} visits; the most expensive first",
    ),
    "learned": (
        "Learned",
        "the largest rise of the pass rate, from the first third of the visits to the last",
    ),
}

STEPS = 24  # steps that the sample takes answers from
GROUPS = 600  # groups in the sample, at most
EACH = 2  # answers shown of a group, for each of: right, wrong, without a verdict
LONGEST = 3000  # characters shown of an answer
SHORT = 200  # characters shown of the extracted answer, and of the gold
# Columns of the rollout logs that the sample reads.
COLUMNS = (
    *(*SMALL, *BELIEF),
    *("prompt", "answer", "reason", "reward"),
    *("length", "finished", "round", "trained"),
)
# Characters that are invisible, or that reverse the text around them, are shown by their names.
NAMED = {c: f"[U+{c:04X}]" for c in (*range(0x202A, 0x202F), *range(0x2066, 0x206A))}
NAMED |= {c: chr(0x2400 + c) for c in range(32) if chr(c) not in "\t\n\r"}


# ------------------------------------------------------------------------------ lists of prompts
def lists(run: Run) -> dict[str, list[Prompt]]:
    """Returns the prompts of each of `LISTS`, the most expensive first; of "learned", the largest rise."""
    by_list: dict[str, list[Prompt]] = {name: [] for name in LISTS}
    for prompt in sorted(run.prompts.values(), key=lambda p: (-p.rollouts, p.uid)):
        visits, last = prompt.visits, prompt.visits[-REVISITED:]
        judged = [group for group in visits if group.count]  # an answer may have no verdict
        if len(judged) >= REVISITED and not any(group.right for group in judged):
            by_list["hopeless"].append(prompt)
        if len(last) == REVISITED and all(0 < g.count == g.right for g in last):
            by_list["solved"].append(prompt)
        if len(visits) >= 2 * REVISITED and rise(visits) >= 0.25:
            by_list["learned"].append(prompt)
    # The other lists stay sorted by cost. This sort is stable, so cost decides between equal rises.
    by_list["learned"].sort(key=lambda prompt: -round(rise(prompt.visits), 3))
    return by_list


def share(run: Run, prompts: Sequence[Prompt]) -> float:
    """Returns the share of all rollouts that went to `prompts`."""
    return sum(prompt.rollouts for prompt in prompts) / max(1, run.num_answers)


def rise(visits: Sequence[Group]) -> float:
    """Returns the rise of the pass rate from the first third of the judged visits to the last third.

    0 if no visit was judged.
    """
    judged = [group for group in visits if group.count]
    if not judged:
        return 0.0
    third = max(1, len(judged) // 3)
    first, last = _rate(judged[:third]), _rate(judged[-third:])
    assert first is not None and last is not None  # all of these are judged
    return last - first


def _rate(groups: Sequence[Group]) -> float | None:
    """Returns the share of right answers; None if no answer was judged."""
    count = sum(group.count for group in groups)
    return sum(group.right for group in groups) / count if count else None


def wrong(prompt: Prompt, count: int = 3) -> str:
    """Returns the `count` most frequent wrong answers, as text."""
    shown = [
        f"{'no answer' if text == 'None' else text.strip() or 'blank'} ({num}×)"
        for text, num in prompt.wrong.most_common(count)
    ]
    more = len(prompt.wrong) - len(shown)
    others = [f"{more} other{'s' if more > 1 else ''}"] if more > 0 else []
    return visible(", ".join([*shown, *others]))


def table(run: Run) -> list[dict[str, Any]]:
    """Returns a row for each subset: groups, their share, share of mixed groups, early and late accuracy."""
    early, late = np.quantile(sorted({group.step for group in run.groups}) or [0], [0.25, 0.75])
    by_subset = collections.defaultdict(list)
    for group in run.groups:
        by_subset[run.prompts[group.uid].subset].append(group)
    rows = []
    for name, groups in by_subset.items():
        mixed = [0 < group.right < group.count for group in groups]
        row = {
            "subset": name,
            "prompts": len({run.prompts[group.uid].source for group in groups}),
            "groups": len(groups),
            "share": len(groups) / len(run.groups),
            "mixed": float(np.mean(mixed)),
            "early": _rate([group for group in groups if group.step <= early]),
            "late": _rate([group for group in groups if group.step >= late]),
        }
        rows.append(row)
    return sorted(rows, key=lambda row: -row["groups"])


# ------------------------------------------------------------------------------ sample of answers
def sample(run: Run, budget: int) -> list[dict[str, Any]]:
    """Returns groups with some of their answers, sorted by step.

    `STEPS` evenly spaced steps take turns: each adds one group, of another subset each time, until
    `budget` characters of JSON are used. The same run always gives the same sample.
    """
    kept: list[dict[str, Any]] = []
    for group in _in_turn(run):
        cost = len(utils.htmlsafe_json_dumps(group))
        if cost > budget or len(kept) == GROUPS:
            break
        budget -= cost
        kept.append(group)
    return sorted(kept, key=lambda group: (group["step"], group["number"]))


def _in_turn(run: Run) -> Iterator[dict[str, Any]]:
    """Yields groups, one from each step in turn, evenly over subsets."""
    steps = sorted(run.logs)
    queues = [_of_step(run, steps[i]) for i in curves.evenly(len(steps), STEPS)]
    while queues := [queue for queue in queues if queue]:
        for queue in queues:
            yield queue.pop(0)


def _of_step(run: Run, step: int) -> list[dict[str, Any]]:
    """Returns the groups of a step in random order: first one of each subset, then a second of each, ..."""
    rows = run.texts(run.logs[step], COLUMNS)
    groups = list(rows_of_groups(rows).values())
    random.Random(step).shuffle(groups)
    queue, seen = [], collections.Counter()
    for number, members in enumerate(groups):
        prompt = run.prompts[str(rows["uid"][members[0]])]
        queue.append((seen[prompt.subset], number, members, prompt))
        seen[prompt.subset] += 1
    return [
        {"step": step, "number": number, **_group(rows, members, prompt)}
        for _, number, members, prompt in sorted(queue, key=lambda entry: entry[:2])
    ]


def _group(rows: Columns, members: Sequence[int], prompt: Prompt) -> dict[str, Any]:
    first = members[0]
    judged = [i for i in members if is_number(rows["correct"][i])]
    right = [i for i in judged if rows["correct"][i] > 0.5]
    wrong = [i for i in judged if i not in right]
    unknown = [i for i in members if i not in judged]
    # A variant's words may differ from visit to visit, so its question is shown with the group.
    asked = question(rows["prompt"][first])[:LONGEST] if prompt.variant else None
    return {
        "round": _number(rows["round"][first]),
        "uid": prompt.uid,
        "question": asked,
        "right": len(right),
        "count": len(judged),
        "belief": [_number(rows[name][first]) for name in BELIEF],
        "answers": [
            _answer(rows, i, i in right if i in judged else None)
            for i in sorted(x for kind in (right, wrong, unknown) for x in _different(rows, kind))
        ],
    }


def _different(rows: Columns, members: Sequence[int]) -> list[int]:
    """Returns at most `EACH` rows; distinct answers come before repeated ones."""
    first, again = {}, []
    for i in members:
        if first.setdefault(rows["answer"][i], i) != i:
            again.append(i)
    return [*first.values(), *again][:EACH]


def _answer(rows: Columns, i: int, right: bool | None) -> dict[str, Any]:
    text = str(rows["answer"][i] if rows["answer"][i] is not None else "")
    left_out = max(0, len(text) - LONGEST)
    if left_out:
        text = f"{text[: LONGEST // 2]} […] {text[-LONGEST // 2 :]}"
    extracted, reason = rows["extracted"][i], rows["reason"][i]
    return {
        "text": visible(text),
        "cut": left_out,
        "extracted": None if extracted is None else shortened(str(extracted)),
        "reason": None if reason is None else shortened(str(reason)),
        "right": right,
        "reward": _number(rows["reward"][i]),
        "length": _number(rows["length"][i]),
        "finished": rows["finished"][i] is not False,
        "trained": rows["trained"][i] is not False,
    }


def shortened(text: str) -> str:
    """Returns the first `SHORT` characters of a text, with an ellipsis if it is longer."""
    return visible(text if len(text) <= SHORT else f"{text[:SHORT]}…")


def visible(text: str) -> str:
    """Returns a text with the characters of `NAMED` replaced by their names."""
    return text.translate(NAMED)


def _number(x: Any) -> float | None:
    return round(x, 3) if is_number(x) else None
