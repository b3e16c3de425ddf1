r"""MathVista testmini: 1,000 questions from 28 sources; a model extracts, rules score.

An answer that is literally a choice, an integer or a float needs no extraction. The official rules
are kept with their traps: a multiple choice always ends as some choice (the one at the least edit
distance, the first of equals), a bare lower-case letter is no letter, 4.9 is the integer 4, rounding
is Python's, and lists must match to the space.
"""

import dataclasses
import pathlib
import re
from collections.abc import Sequence

from vade_jax import types
from vade_jax.evals.benchmarks import base, mathvista_judge, rows

_KEYS = ("language", "source", "category", "task", "context", "grade", "skills")
_COLUMNS = ("pid", "question", "choices", "precision", "answer", "question_type")
FORMS = ((*_COLUMNS, "image", "answer_type", "metadata", "query"),)
_PARENTHESISED = re.compile(r"\(([a-zA-Z])\)")
_KINDS = {"integer": "int", "float": "float", "list": "text", "text": "text"}


def read(path: str | pathlib.Path) -> list[types.Item]:
    """Returns the items of testmini (the answers of the test split are hidden)."""
    return rows.items(path, FORMS, _item)


def _item(row: rows.Row) -> types.Item:
    choices = row.texts("choices")
    question_type = row.one_of("question_type", ("multi_choice", "free_form"))
    answer_type = row.one_of("answer_type", tuple(_KINDS))
    if (question_type == "multi_choice") != bool(choices):
        raise row.bad("choices", f"{choices!r} for a {question_type} question")
    if answer_type == "float" and not isinstance(row["precision"], int | float):
        raise row.bad("precision", f"{row['precision']!r} for a float")
    found = row.fields("metadata", _KEYS)
    return types.Item(
        uid=f"mathvista:{row.text('pid')}",
        question=row.text("question"),
        images=(row.image("decoded_image", "image"),),
        answer=row.text("answer"),
        kind=_KINDS[answer_type],
        metadata={
            "query": row.text("query"),
            "choices": list(choices),
            "precision": row["precision"],
            "question_type": question_type,
            "answer_type": answer_type,
            **found,
        },
    )


def prompt(item: types.Item, profile: str) -> str:
    """Returns the published query (hint, question, unit, choices); "cot" asks for a box too."""
    cot = base.check_profile(profile) == "cot"
    return item.metadata["query"] + (f"\n{base.BOXED}" if cot else "")


def extract(text: str, item: types.Item, profile: str = "paper") -> str | None:
    """Returns what rules can read, None if a model must extract; under "cot" the box first."""
    if profile == "cot" and (boxed := _from_box(base.boxed(text), item)):
        return boxed
    if text == "":
        return ""
    if item.metadata["question_type"] == "multi_choice":
        return text if text in item.metadata["choices"] else None
    read_as = {"integer": int, "float": float}.get(item.metadata["answer_type"])
    try:
        return str(read_as(text)) if read_as else None
    except ValueError:
        return None


def _from_box(box: str | None, item: types.Item) -> str | None:
    """Returns what the box holds if the rules of scoring make of it what was meant."""
    choices = item.metadata["choices"]
    if not box or not choices:
        return box if box and _normalize(box, item) is not None else None
    is_letter = box.strip("()") in base.letters(choices)
    return base.spelled(box, choices) or (box.strip("()") if is_letter else None)


def score(extracted: str, item: types.Item, profile: str = "paper") -> bool:
    """Returns whether the normalised extraction is the gold text."""
    return _normalize(extracted, item) == item.answer


def _normalize(extracted: str, item: types.Item) -> str | None:
    names = ("choices", "question_type", "answer_type", "precision")
    return normalize(extracted, *(item.metadata[name] for name in names))


def normalize(
    extraction: str,
    choices: Sequence[str] | None,
    question_type: str,
    answer_type: str,
    precision: float | None,
) -> str | None:
    """Returns the extraction as the type of the answer is written, None if it is not of the type."""
    if question_type == "multi_choice":
        return _choice(extraction.strip(), choices)
    try:
        number = None if answer_type in ("list", "text") else float(extraction)
        if answer_type == "integer":
            return str(int(number))
        if answer_type == "float":
            return str(round(number, int(precision)))
    except (ValueError, OverflowError):
        return None
    return extraction


def _choice(text: str, choices: Sequence[str]) -> str:
    """Returns the choice that a letter names, else the nearest one."""
    options = base.letters(choices)
    text = next((m.upper() for m in _PARENTHESISED.findall(text)), text)
    if text in options:
        return choices[options.index(text)]
    return min(choices, key=lambda choice: edit_distance(text, choice))


def edit_distance(a: str, b: str) -> int:
    """Returns the least number of inserted, deleted and replaced characters (Levenshtein)."""
    previous = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        current = [i]
        for j, y in enumerate(b, 1):
            change = previous[j - 1] + (x != y)
            current.append(min(previous[j] + 1, current[-1] + 1, change))
        previous = current
    return previous[-1]


def groups(item: types.Item) -> base.Groups:
    """Returns the nine published breakdowns; an item counts once for each of its skills."""
    found = {}
    for key in ("question_type", "answer_type", *_KEYS):
        value = item.metadata[key]
        found[key] = tuple(dict.fromkeys(value)) if key == "skills" else (str(value),)
    return found


BENCHMARK = base.Benchmark(
    name="mathvista",
    title="MathVista",
    num_items=1000,
    read=read,
    prompt=prompt,
    extract=extract,
    score=score,
    groups=groups,
    protocols={"paper": base.SAMPLED, "cot": base.SAMPLED},
    judge=mathvista_judge.EXTRACTION,
)


def _whole(text: str, item: types.Item, profile: str = "paper") -> str:
    return text


def _undecided(extracted: str, item: types.Item, profile: str = "paper") -> None:
    return None


BINARY = dataclasses.replace(
    BENCHMARK,
    name="mathvista_binary",
    extract=_whole,
    score=_undecided,
    judge=mathvista_judge.BINARY,
)
