r"""MathVista testmini: 1,000 questions from 28 sources; a model extracts, rules score.

An answer that is literally a choice, an integer or a float needs no extraction. The official rules
are kept with their traps: a multiple choice always ends as some choice (the one at the least edit
distance, the first of equals), a bare lower-case letter is not a letter, 4.9 is the integer 4, rounding
is Python's, and lists must match to the space.

The worked examples in the prompts are ours; the published ones are under a share-alike licence.
"""

import functools
import re
from collections.abc import Sequence

import numpy as np

from experiments.evals.benchmarks import base
from vade_jax import types

_KEYS = ("language", "source", "category", "task", "context", "grade", "skills")
_COLUMNS = ("pid", "question", "choices", "precision", "answer", "question_type")
# Of testmini; the answers of the test split are hidden.
FORMS = ((*_COLUMNS, "image", "answer_type", "metadata", "query"),)
_PARENTHESISED = re.compile(r"\(([a-zA-Z])\)")
_KINDS = {"integer": "int", "float": "float", "list": "text", "text": "text"}


def _item(row: base.FileRow) -> types.Item:
    choices = row.texts("choices")
    question_type = row.one_of("question_type", ("multi_choice", "free_form"))
    answer_type = row.one_of("answer_type", tuple(_KINDS))
    if (question_type == "multi_choice") != bool(choices):
        raise row.bad("choices", f"{choices!r} for a {question_type} question")
    if answer_type == "float" and not isinstance(row["precision"], int | float):
        raise row.bad("precision", f"{row['precision']!r} for a float")
    fields_read = row.fields("metadata", _KEYS)
    if not isinstance(fields_read["skills"], list) or not all(
        isinstance(x, str) for x in fields_read["skills"]
    ):
        raise row.bad("metadata", f"skills {fields_read['skills']!r} is not a list of texts")
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
            **fields_read,
        },
    )


def prompt(item: types.Item, profile: str) -> str:
    """Returns the published query (hint, question, unit, choices); "cot" also asks for a box."""
    return base.asked(item.metadata["query"], profile)


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
    """Returns the content of the box if the scoring rules can read it.

    Otherwise the judge extracts: those rules turn any text into a choice, even "both".
    """
    choices = item.metadata["choices"]
    if not box or not choices:
        return box if box and normalize(box, item) is not None else None
    is_letter = box.strip("()") in base.letters(choices)
    return base.spelled(box, choices) or (box.strip("()") if is_letter else None)


def score(extracted: str, item: types.Item, profile: str = "paper") -> bool:
    """Returns whether the normalised extraction is the gold text."""
    return normalize(extracted, item) == item.answer


def normalize(extracted: str, item: types.Item) -> str | None:
    """Returns the extraction as the type of the answer is written, None if it is not of the type."""
    known = item.metadata
    if known["question_type"] == "multi_choice":
        return _choice(extracted.strip(), known["choices"])
    if known["answer_type"] in ("list", "text"):
        return extracted
    try:
        number = float(extracted)
        if known["answer_type"] == "integer":
            return str(int(number))  # cut off, not rounded, as the official scorer does
        return str(round(number, int(known["precision"])))
    except (ValueError, OverflowError):
        return None


def _choice(text: str, choices: Sequence[str]) -> str:
    """Returns the choice that a letter names, else the nearest one."""
    options = base.letters(choices)
    text = next((m.upper() for m in _PARENTHESISED.findall(text)), text)
    if text in options:
        return choices[options.index(text)]
    return min(choices, key=lambda choice: edit_distance(text, choice))


def edit_distance(text: str, choice: str) -> int:
    """Returns the least number of inserted, deleted and replaced characters (Levenshtein).

    The table has a row for each character of `choice`, and a row is computed at once: a judge may reply
    with a megabyte.
    """
    code_T = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    count_T = np.arange(len(text) + 1, dtype=np.int32)
    distance_T = count_T
    for i, char in enumerate(choice, 1):
        changed_T = np.minimum(distance_T[:-1] + (code_T != ord(char)), distance_T[1:] + 1)
        # What is then inserted along the row costs one each: the least of all places before.
        begun_T = np.concatenate([count_T[:1] + i, changed_T]) - count_T
        distance_T = np.minimum.accumulate(begun_T) + count_T
    return int(distance_T[-1])


def groups(item: types.Item) -> base.Groups:
    """Returns the nine published breakdowns; an item counts once for each of its skills."""
    fields_read = {}
    for key in ("question_type", "answer_type", *_KEYS):
        value = item.metadata[key]
        fields_read[key] = tuple(dict.fromkeys(value)) if key == "skills" else (str(value),)
    return fields_read


# ------------------------------------------------------------------------------ judge model
_EXTRACT = """\
Read a question, with its hint, and a model's response. Write the answer that the response gives, in
the form that the hint asks for, and nothing else. Do not solve the question yourself.

Hint: Answer with an integer.
Question: How many boats are in the harbour?

Two sailing boats and four rowing boats are tied up, so there are 6 boats altogether.

Extracted answer: 6

Hint: Answer with a number with one decimal.
Question: How long is the diagonal of the garden? (Unit: m)

The diagonal is the root of 6.25 + 36, which makes about 6.5 metres.

Extracted answer: 6.5

Hint: Answer with a number with two decimals.
Question: What share of the pie is blue?

Blue covers a little over a third; reading the legend it is 0.36 of the pie.

Extracted answer: 0.36

Hint: Answer with a list.
Question: In which two years did the river flood?

The bars pass the red line in 1988 and again in 1994.

Extracted answer: [1988, 1994]

Hint: Answer with the letter of an option.
Question: Which shelf holds the most jars?
Choices:
(A) top
(B) middle
(C) bottom

I count nine jars on the bottom shelf and fewer on the others, so the third option it is.

Extracted answer: C"""


# ------------------------------------------------------------------------------ registry
BENCHMARK = base.Benchmark(
    name="mathvista",
    title="MathVista",
    num_items=1000,
    read=functools.partial(base.read_items, forms=FORMS, build=_item),
    prompt=prompt,
    extract=extract,
    score=score,
    groups=groups,
    judge=base.JudgePrompts(
        extraction_prompt=lambda text, item: (
            f"{_EXTRACT}\n\n{item.metadata['query']}\n\n{text}\n\nExtracted answer: "
        ),
        # Without the label, which models repeat; an empty reply is requested again.
        read_extraction=lambda reply: reply.split("Extracted answer:")[-1].strip() or None,
        max_tokens=1024,
    ),
)
