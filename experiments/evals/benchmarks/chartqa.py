"""ChartQA: a word or number about a chart, right within 5 % (relaxed accuracy).

The rules are those of the public harness that matches the paper's scores: greedy, 16 tokens, one word. An
answer is not cleaned, so "the answer is 10", "$10" and "1,000" for 1000 are wrong, and 2019 for 2010 is
right. Under these rules a boxed answer scores zero: hence the profile "cot".
"""

import functools

from experiments.evals.benchmarks import base
from vade_jax import types

INSTRUCTION = "Answer the question with a single word."
TOLERANCE = 0.05
FORMS = (
    ("question", "answer", "image", "type"),
    ("query", "label", "image", "human_or_machine"),
)
_TYPES = {"human_test": "human", "augmented_test": "augmented"}
_MACHINE = {0: "human", 1: "augmented"}


def _item(row: base.FileRow) -> types.Item:
    """Returns an item of either published form."""
    if "query" in row.values:
        question, answer = "query", "label"
        kind = _MACHINE[row.one_of("human_or_machine", list(_MACHINE))]
    else:
        question, answer = "question", "answer"
        kind = _TYPES[row.one_of("type", list(_TYPES))]
    golds = row[answer] if isinstance(row[answer], list) else [row.text(answer)]
    if len(golds) != 1:
        raise row.bad(answer, f"{golds!r} is not one answer")
    return types.Item(
        uid=f"chartqa:{row.file.stem}:{row.index}",
        question=row.text(question),
        images=(row.image("image"),),
        answer=str(golds[0]),
        kind="text",
        metadata={"type": kind},
    )


def prompt(item: types.Item, profile: str) -> str:
    """Returns the question with an instruction after it."""
    return f"{item.question}\n{base.BOXED if profile == 'cot' else INSTRUCTION}"


def extract(text: str, item: types.Item, profile: str = "paper") -> str:
    r"""Returns the full text, or under "cot" the content of the box ("" without one)."""
    return (base.boxed(text) or "") if profile == "cot" else text


def score(extracted: str, item: types.Item, profile: str = "paper") -> bool:
    """Returns whether the answer is within 5 % of a number, or else the same text."""
    gold, number = _number(item.answer), _number(extracted)
    if number is not None and gold:  # a gold of zero has no 5 %: texts are compared
        return abs(number - gold) / abs(gold) <= TOLERANCE
    return extracted.lower() == item.answer.lower()


def _number(text: str) -> float | None:
    """Returns the float that Python reads in `text`, a percentage as a share, or None."""
    try:
        return float(text.rstrip("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None


BENCHMARK = base.Benchmark(
    name="chartqa",
    title="ChartQA",
    num_items=2500,
    read=functools.partial(base.read_items, forms=FORMS, build=_item),
    prompt=prompt,
    extract=extract,
    score=score,
    groups=lambda item: {"type": (item.metadata["type"],)},
    paper=base.DIRECT,
)
