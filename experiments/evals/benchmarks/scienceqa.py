"""ScienceQA: school questions with two to five options, answered by a letter.

The rules are those of the public harness that matches the paper's scores: greedy, 16 tokens, the letter
alone or followed by a full stop. "(B)", "B)", "The answer is B" and a boxed letter are wrong: hence
the profile "cot". The paper's 2,017 items are the test questions with a picture; a file with the others can
also be read, and is grouped by modality.
"""

import functools
import re

from experiments.evals.benchmarks import base
from vade_jax import types
from vade_jax.data import pictures

INSTRUCTION = "Answer with the option's letter from the given choices directly."
FORMS = (("image", "question", "choices", "answer", "hint", "grade", "subject"),)
_LETTER = re.compile(r"\W{0,3}([A-Ja-j])(?:\W{0,3}|[.:)]\s?\S.*)", re.DOTALL)


def _item(row: base.FileRow) -> types.Item:
    choices = row.texts("choices")
    if len(choices) < 2:
        raise row.bad("choices", f"{choices!r} is not a list of choices")
    answer = row.one_of("answer", range(len(choices)))
    grade = re.fullmatch(r"grade(\d+)", row.text("grade"))
    if grade is None:
        raise row.bad("grade", f"{row['grade']!r} is not like 'grade7'")
    return types.Item(
        uid=f"scienceqa:{row.index}",
        question=row.text("question"),
        images=() if pictures.is_empty(row["image"]) else (row.image("image"),),
        answer=base.letters(choices)[answer],
        kind="choice",
        metadata={
            "choices": list(choices),
            "hint": row.text("hint", may_be_empty=True),
            "subject": row.text("subject"),
            "grade": int(grade[1]),
        },
    )


def prompt(item: types.Item, profile: str) -> str:
    """Returns the hint, the question, its options and an instruction."""
    context = f"Context: {item.metadata['hint']}\n" if item.metadata["hint"] else ""
    options = base.lines(item.metadata["choices"], "{}. {}")
    instruction = base.BOXED_LETTER if profile == "cot" else INSTRUCTION
    return f"{context}{item.question}{options}\n{instruction}"


def extract(text: str, item: types.Item, profile: str = "paper") -> str:
    """Returns the full text, or under "cot" the letter in the box ("" without a box)."""
    if profile != "cot":
        return text
    box, choices = base.boxed(text) or "", item.metadata["choices"]
    if (choice := base.spelled(box, choices)) is not None:
        return base.letters(choices)[choices.index(choice)]
    match = _LETTER.fullmatch(box)
    return match[1] if match else box


def score(extracted: str, item: types.Item, profile: str = "paper") -> bool:
    """Returns whether the answer is the letter, in any case, or the capital and a full stop."""
    answer = extracted.strip()
    if answer.lower() == item.answer.lower():
        return True
    return answer[:1].isupper() and answer[1:2] == "." and answer[0] == item.answer


def groups(item: types.Item) -> base.Groups:
    """Returns subject, grade and the published modalities: text context, image, neither."""
    modality = ["text"] if item.metadata["hint"] else []
    modality += ["image"] if item.images else []
    return {
        "subject": (item.metadata["subject"],),
        "modality": tuple(modality or ["none"]),
        "grade": ("1-6" if item.metadata["grade"] <= 6 else "7-12",),
    }


BENCHMARK = base.Benchmark(
    name="scienceqa",
    title="ScienceQA",
    num_items=2017,
    read=functools.partial(base.read_items, forms=FORMS, build=_item),
    prompt=prompt,
    extract=extract,
    score=score,
    groups=groups,
    paper=base.DIRECT,
)
