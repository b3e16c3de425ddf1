"""From answers to verdicts and a result, with every item's words kept beside it."""

import collections
import functools
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tqdm
from ml_collections import ConfigDict

from experiments.evaluations import server
from experiments.evaluations.answers import Answer, Key
from experiments.evaluations.plan import Plan
from vade_jax import atomic
from vade_jax.evals import judge, results, rules
from vade_jax.evals.chat import Chat

ITEMS = "items.jsonl"
RESULT = "result.json"


def make_judge(c: ConfigDict, plans: Sequence[Plan], workdir: str) -> Chat | None:
    """Returns what asks the judge, None if rules decide everything.

    Raises:
      ValueError: a judge is needed and there is none, or the other way round.
    """
    names = [plan.name for plan in plans if plan.benchmark.needs_judge]
    if c.judge.rules and c.judge.url:
        raise ValueError(
            "--rules and --judge_server: rules alone need no judge, give one of them"
        )
    if c.judge.rules:
        for plan in plans:
            rules.by_rules(plan.benchmark, plan.profile)
        return None
    if not names:
        return None
    if not c.judge.url:
        raise ValueError(
            f"{' and '.join(names)}: some answers take a judge: give --judge_server and "
            "--judge_model, or --rules for rules of our own (not the published scores)"
        )
    return server.chat(c.judge, "judge", os.path.join(workdir, "replies", "judge"))


def score(
    plan: Plan,
    answers: Mapping[Key, Answer],
    chat: Chat | None,
    directory: str,
    label: str,
    settings: Mapping[str, Any],
) -> results.Result:
    """Returns the result; writes it and `items.jsonl` (a line an answer) to `directory`.

    Raises:
      ServerLost: of the judge; what it has said is kept.
    """
    texts = [getattr(answers.get(key), "text", None) for key in plan.keys]
    asked = [item for item in plan.items for _ in range(plan.num_samples)]
    verdicts = _verdicts(plan, asked, texts, chat)
    _write_items(pathlib.Path(directory, ITEMS), plan, answers, asked, verdicts)
    groups = range(0, len(verdicts), plan.num_samples)
    by_item = [verdicts[i : i + plan.num_samples] for i in groups]
    result = results.collect(
        label,
        plan.benchmark,
        plan.profile,
        plan.items,
        [[verdict.correct for verdict in group] for group in by_item],
        [[verdict.extracted for verdict in group] for group in by_item],
        settings=settings,
        counts=_counts(plan, answers, verdicts),
    )
    results.save(os.path.join(directory, RESULT), result)
    return result


def _verdicts(plan, asked, texts, chat) -> list[rules.Verdict]:
    if chat is None:
        decide, each = rules.by_rules(plan.benchmark, plan.profile), map
    else:
        decide, each = judge.by_model(plan.benchmark, plan.profile, chat), chat.map
    pairs = list(zip(asked, texts, strict=True))
    bar = tqdm.tqdm(
        each(functools.partial(_decide, decide), pairs),
        desc=f"scoring {plan.name}",
        total=len(pairs),
    )
    return list(bar)


def _decide(decide: Callable, pair) -> rules.Verdict:
    item, text = pair
    return rules.MISSING if text is None else decide(item, text)


def _counts(plan, answers, verdicts) -> dict[str, int]:
    """Returns what a reader must know of: failures, and answers cut off at their limit."""
    outcomes = collections.Counter(verdict.outcome for verdict in verdicts)
    wanted = [answers[key] for key in plan.keys if key in answers]
    cut_off = sum(answer.finished is False for answer in wanted)
    return {name: outcomes[name] for name in rules.FAILURES} | {"cut_off": cut_off}


def _write_items(path, plan, answers, asked, verdicts) -> None:
    with atomic.replacing(path) as temporary, temporary.open("w") as file:
        for key, item, verdict in zip(plan.keys, asked, verdicts, strict=True):
            answer = answers.get(key)
            row = {
                "uid": key[0],
                "sample": key[1],
                "gold": item.answer,
                "text": answer and answer.text,
                "extracted": verdict.extracted,
                "correct": bool(verdict.correct),
                "outcome": verdict.outcome,
                "judge": list(verdict.replies),
                "num_tokens": answer and answer.num_tokens,
                "finished": answer and answer.finished,
            }
            file.write(json.dumps(row) + "\n")
