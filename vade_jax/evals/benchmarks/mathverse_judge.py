"""What a language model is asked about a MathVerse answer: to extract it, then to judge it.

The worked examples are ours.
"""

from vade_jax import types
from vade_jax.evals.benchmarks import base

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


def extraction_prompt(text: str, item: types.Item, last_words: int = LAST_WORDS) -> str:
    """Returns six worked examples and the last words of the response (0: all of it)."""
    return _EXTRACT.format(text=" ".join(text.split(" ")[-last_words:]))


def read_extraction(reply: str) -> str | None:
    """Returns the reply without a repeated label ("null" is an answer), None if it is empty."""
    return reply.replace("Extracted Answer:", "").strip() or None


def judge_prompt(extracted: str, item: types.Item) -> str:
    """Returns five worked examples and the comparison to make."""
    question = item.metadata["question_for_eval"]
    return _JUDGE.format(question=question, answer=item.answer, extracted=extracted)


def read_judgement(reply: str) -> bool | None:
    """Returns the verdict, None for anything but 0 or 1."""
    digit = reply.replace("Judgement:", "").strip()
    return {"1": True, "0": False}.get(digit)


JUDGE = base.Judge(
    extraction_prompt=extraction_prompt,
    read_extraction=read_extraction,
    judge_prompt=judge_prompt,
    read_judgement=read_judgement,
)
