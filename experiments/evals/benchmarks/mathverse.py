"""MathVerse testmini: 788 geometry problems in five versions, which say less and less outside the picture.

A model extracts the answer, without seeing the question; a model judges it against the gold. The
text-only version does not count in the total of 3,940. `query_cot`, of the two published queries, is asked.
"""

import functools

from experiments.evals.benchmarks import base
from vade_jax import types
from vade_jax.rewards import answers

VERSIONS = ("Text Dominant", "Text Lite", "Vision Intensive", "Vision Dominant", "Vision Only")
_COLUMNS = ("sample_index", "problem_index", "problem_version", "question", "image")
FORMS = ((*_COLUMNS, "answer", "question_type", "metadata", "query_cot"),)


def _item(row: base.FileRow) -> types.Item:
    """Returns an item; metadata "problem" is one number for five versions.

    A version with the question only in the picture is judged by `question_for_eval`.
    """
    version = row.one_of("problem_version", VERSIONS)
    question = row.text("question", may_be_empty=True)
    judged = row.text("question_for_eval", may_be_empty=True) or question
    if version == "Vision Only" and not judged:
        raise row.bad("question_for_eval", "is empty, so its answer cannot be judged")
    answer = row.text("answer").strip()
    question_type = row.one_of("question_type", ("multi-choice", "free-form"))
    is_letter = question_type == "multi-choice" and len(answer) == 1
    kind = "expr" if answers.is_formula(answer) else "text"  # for rules alone
    return types.Item(
        uid=f"mathverse:{row.text('sample_index')}",
        question=question,
        images=(row.image("image"),),
        answer=answer,
        kind="choice" if is_letter else kind,
        metadata={
            "problem": row.text("problem_index"),
            "version": version,
            "question_type": question_type,
            "query_cot": row.text("query_cot"),
            "question_for_eval": judged,
            **row.fields("metadata", ("subject", "subfield")),
        },
    )


def prompt(item: types.Item, profile: str) -> str:
    """Returns the published query; "cot" also asks for a box."""
    return base.asked(item.metadata["query_cot"], profile)


def extract(text: str, item: types.Item, profile: str = "paper") -> str | None:
    """Returns None, for a model to extract; under "cot" the content of the box, if there is one."""
    return base.boxed(text) or None if profile == "cot" else None


def score(extracted: str, item: types.Item, profile: str = "paper") -> bool | None:
    """Returns None, for a model to judge; under "cot" True if the texts are equal."""
    if profile == "cot" and extracted.strip("() ").lower() == item.answer.lower():
        return True
    return None


def groups(item: types.Item) -> base.Groups:
    """Returns version, subject, and subfield within its subject."""
    subject = item.metadata["subject"]
    return {
        "version": (item.metadata["version"],),
        "subject": (subject,),
        "subfield": (f"{subject}, {item.metadata['subfield']}",),
    }


# ------------------------------------------------------------------------------ judge model
# The worked examples are ours.
LAST_WORDS = 30  # of a response that the extraction sees, as published

_EXTRACT = """\
Copy the final answer out of a model's response: the letter of an option, a number or an expression.
Write null when the response gives none. Add no words.

Model response: 'Since the two angles add up to a right angle, the other one is 35°. So B fits.'
Extracted Answer: B

Model response: 'Adding the three sides of the field gives a perimeter of 41 metres.'
Extracted Answer: 41

Model response: 'I cannot make out the labels in this figure, so nothing can be concluded.'
Extracted Answer: null

Model response: 'The line passes (0, -3) and rises by two at each step, hence y = 2x - 3.'
Extracted Answer: y = 2x - 3

Model response: 'Option: (D) \\frac{{5}}{{6}}'
Extracted Answer: D

Model response: 'the volume is thus eight times nine times pi, that is 72\\pi cubic inches.'
Extracted Answer: 72\\pi

Model response: '{text}'
Extracted Answer: """

_JUDGE = """\
Compare a model's answer with the standard answer to a question. Reply with 1 if they mean the same:
notation, units and spelling may differ, and a letter may stand for the text of its option. Reply
with 0 if they do not, or if the model's answer is null. Reply with one digit, no words.

[Question]: How far is the foot of the ladder from the wall?
[Standard Answer]: \\sqrt{{12}} m
[Model answer]: 2\\sqrt{{3}}
Judgement: 1

[Question]: Which angle equals the marked one?
Choices:
A: angle P
B: angle Q
C: angle R
[Standard Answer]: C
[Model answer]: angle Q
Judgement: 0

[Question]: Which angle equals the marked one?
Choices:
A: angle P
B: angle Q
C: angle R
[Standard Answer]: B
[Model answer]: angle Q
Judgement: 1

[Question]: For which x does the graph lie below the axis?
[Standard Answer]: -1 < x < 4
[Model answer]: (-1, 4)
Judgement: 1

[Question]: What is the area of the shaded ring?
[Standard Answer]: 16\\pi
[Model answer]: null
Judgement: 0

[Question]: {question}
[Standard Answer]: {answer}
[Model answer]: {extracted}
Judgement: """


# ------------------------------------------------------------------------------ registry
BENCHMARK = base.Benchmark(
    name="mathverse",
    title="MathVerse",
    num_items=3940,
    read=functools.partial(base.read_items, forms=FORMS, build=_item),
    prompt=prompt,
    extract=extract,
    score=score,
    groups=groups,
    judge=base.JudgePrompts(
        extraction_prompt=lambda text, item: _EXTRACT.format(
            text=" ".join(text.split(" ")[-LAST_WORDS:])
        ),
        # Without the label, which models repeat; "null" is an answer.
        read_extraction=lambda reply: reply.replace("Extracted Answer:", "").strip() or None,
        judge_prompt=lambda extracted, item: _JUDGE.format(
            question=item.metadata["question_for_eval"], answer=item.answer, extracted=extracted
        ),
        # Anything but 0 or 1 is asked for again.
        read_judgement=lambda reply: {"1": True, "0": False}.get(
            reply.replace("Judgement:", "").strip()
        ),
    ),
    cluster=lambda item: item.metadata["problem"],
)
