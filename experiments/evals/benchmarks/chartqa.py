"""ChartQA: a word or number about a chart, right within 5 % (relaxed accuracy).

The rules are those of the public harness that the paper's scores fit: greedy, 16 tokens, one word
asked for. Nothing is cut off an answer, so "the answer is 10", "$10" and "1,000" for 1000 are wrong,
and 2019 for 2010 is right. Under these rules a boxed answer scores zero: hence the profile "cot".
"""

import pathlib

from experiments.evals.benchmarks import base
from vade_jax import types

INSTRUCTION = "Answer the question with a single word."
TOLERANCE = 0.05
FORMS = (
    ("question", "answer", "image", "type"),
    ("query", "label", "image", "human_or_machine"),
    ("query", "label", "imgname"),
)
_TYPES = {"human_test": "human", "augmented_test": "augmented"}
_MACHINE = {0: "human", 1: "augmented"}


def read(path: str | pathlib.Path) -> list[types.Item]:
    """Returns the items of the test split in any of its three published forms.

    The form with `imgname` is a directory of test_human.json, test_augmented.json (the names say
    which questions are which; one file alone is accepted) and pictures in `png/`.
    """
    halves = [pathlib.Path(path) / name for name in ("test_human.json", "test_augmented.json")]
    if not all(half.is_file() for half in halves):
        halves = [path]
    return [item for half in halves for item in base.read_items(half, FORMS, _item)]


def _item(row: base.FileRow) -> types.Item:
    old = "query" in row.values
    question, answer = ("query", "label") if old else ("question", "answer")
    if isinstance(row[answer], list):
        if len(row[answer]) != 1:
            raise row.bad(answer, f"{row[answer]!r} is not one answer")
        gold = str(row[answer][0])
    else:
        gold = row.text(answer)
    if "imgname" in row.values:
        path = {"imgname": f"png/{row.text('imgname')}"}
        image = base.FileRow(row.file, row.index, path).image("imgname")
    else:
        image = row.image("image")
    return types.Item(
        uid=f"chartqa:{row.file.stem}:{row.index}",
        question=row.text(question),
        images=(image,),
        answer=gold,
        kind="text",
        metadata={"type": _type(row)},
    )


def _type(row: base.FileRow) -> str:
    """Returns "human" or "augmented", from a column or the name of the file."""
    if "type" in row.values:
        return _TYPES[row.one_of("type", list(_TYPES))]
    if "human_or_machine" in row.values:
        return _MACHINE[row.one_of("human_or_machine", list(_MACHINE))]
    found = [name for name in _MACHINE.values() if name in row.file.stem]
    if len(found) != 1:
        raise row.bad("imgname", f"{row.file.name} says neither human nor augmented")
    return found[0]


def prompt(item: types.Item, profile: str) -> str:
    """Returns the question with an instruction after it."""
    return f"{item.question}\n{base.BOXED if profile == 'cot' else INSTRUCTION}"


def extract(text: str, item: types.Item, profile: str = "paper") -> str:
    r"""Returns the whole text, or under "cot" what is in the box ("" without one)."""
    return (base.boxed(text) or "") if profile == "cot" else text


def score(extracted: str, item: types.Item, profile: str = "paper") -> bool:
    """Returns whether the answer is within 5 % of a number, or else the same text."""
    gold, given = _number(item.answer), _number(extracted)
    if given is not None and gold:  # a gold of zero has no 5 %: texts are compared
        return abs(given - gold) / abs(gold) <= TOLERANCE
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
    read=read,
    prompt=prompt,
    extract=extract,
    score=score,
    groups=lambda item: {"type": (item.metadata["type"],)},
    paper=base.DIRECT,
)
