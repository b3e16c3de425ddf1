"""The prompts that a reader wants to see: never right, always right, and those that were learned."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from vade_jax.report.groups import Group, Log, Prompt

REVISITED = 2  # visits before a prompt is called hopeless or solved
SHOWN_VISITS = 40  # cells of the strip, the last ones
SHOWN_SUBSETS = 40  # rows of the table, the largest ones
LISTS = {
    "hopeless": (
        "Never right",
        "visited {revisited} times or more without a single right answer; those that cost most",
    ),
    "solved": (
        "Always right",
        "no wrong answer in the last {revisited} visits; those that cost most",
    ),
    "learned": (
        "Learned",
        "whose pass rate rose most from the first third of their visits to the last",
    ),
}


@dataclasses.dataclass(frozen=True)
class Chosen:
    """One of the lists."""

    name: str
    title: str
    caption: str
    prompts: Sequence[Prompt]
    num_all: int
    share: float  # of all rollouts


def lists(log: Log, count: int) -> list[Chosen]:
    """Returns the lists, of `count` prompts at most; none where the log is empty."""
    if not log.groups:
        return []
    spent = max(1, sum(group.count for group in log.groups))
    found = {name: [] for name in LISTS}
    for prompt in log.prompts.values():
        for name in LISTS:
            if _BELONGS[name](prompt.visits):
                found[name].append(prompt)
    return [
        Chosen(
            name=name,
            title=title,
            caption=caption.format(revisited=REVISITED),
            prompts=sorted(found[name], key=_ORDER[name])[:count],
            num_all=len(found[name]),
            share=sum(prompt.rollouts for prompt in found[name]) / spent,
        )
        for name, (title, caption) in LISTS.items()
    ]


def strip(prompt: Prompt) -> list[dict[str, Any]]:
    """Returns the last visits as the page shows them."""
    return [
        {
            "rate": round(group.right / group.count, 3) if group.count else None,
            "title": f"step {group.step}: {group.right} of {group.count} right",
        }
        for group in prompt.visits[-SHOWN_VISITS:]
    ]


def wrong(prompt: Prompt, count: int = 3) -> str:
    """Returns the wrong answers that were given most."""
    shown = [
        f"{'no answer' if text == 'None' else text.strip() or 'blank'} ({num}×)"
        for text, num in prompt.wrong.most_common(count)
    ]
    more = len(prompt.wrong) - len(shown)
    others = [f"{more} other{'s' if more > 1 else ''}"] if more > 0 else []
    return ", ".join([*shown, *others])


def rise(visits: Sequence[Group]) -> float:
    """Returns how much the pass rate rose from the first third of the visits to the last."""
    third = max(1, len(visits) // 3)
    return _rate(visits[-third:]) - _rate(visits[:third])


def _rate(visits: Sequence[Group]) -> float:
    return sum(g.right for g in visits) / max(1, sum(g.count for g in visits))


def _is_hopeless(visits: Sequence[Group]) -> bool:
    return len(visits) >= REVISITED and not any(group.right for group in visits)


def _is_solved(visits: Sequence[Group]) -> bool:
    last = visits[-REVISITED:]
    return len(last) == REVISITED and all(0 < g.count == g.right for g in last)


_BELONGS = {
    "hopeless": _is_hopeless,
    "solved": _is_solved,
    "learned": lambda visits: len(visits) >= 2 * REVISITED and rise(visits) >= 0.25,
}
_BY_COST = lambda prompt: (-prompt.rollouts, prompt.uid)
_ORDER = {
    "hopeless": _BY_COST,
    "solved": _BY_COST,
    "learned": lambda prompt: (-round(rise(prompt.visits), 3), *_BY_COST(prompt)),
}


def table(log: Log) -> list[dict[str, Any]]:
    """Returns a row a subset: groups, share, how many mixed, and its accuracy early and late."""
    if not log.groups:
        return []
    steps = sorted({group.step for group in log.groups})
    early, late = np.quantile(steps, [0.25, 0.75])
    rows: dict[str, list[Group]] = {}
    for group in log.groups:
        rows.setdefault(log.prompts[group.uid].subset, []).append(group)
    largest = sorted(rows.items(), key=lambda row: -len(row[1]))[:SHOWN_SUBSETS]
    return [
        {
            "subset": name,
            "prompts": len({log.prompts[group.uid].source for group in members}),
            "groups": len(members),
            "share": len(members) / len(log.groups),
            "mixed": float(np.mean([group.is_mixed for group in members])),
            "early": _accuracy([g for g in members if g.step <= early]),
            "late": _accuracy([g for g in members if g.step >= late]),
        }
        for name, members in largest
    ]


def _accuracy(members: Sequence[Group]) -> float | None:
    return _rate(members) if any(group.count for group in members) else None
