r"""From the texts of published data sets to one question, its choices, one gold and its kind.

What is not surely read is a `Refused` with a reason, never a guess.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from vade_jax.data import questions
from vade_jax.rewards import answers, golds, scalars, verify

_LETTER = re.compile(r"answer\s*:\s*\(?([A-J])\)?\.?\s*$", re.IGNORECASE)
_STATED = re.compile(r"(?:the answer is:?|answer\s*:)\s*(.+?)\.?$", re.IGNORECASE)
_LONGEST = 40  # characters of a gold that stands alone
_MOST_WORDS = 5  # of a gold read from a solution
_NUMBER = re.compile(
    r"(?<![\w.])[-−]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?%?(?!\w)"
)
_FORMULA = re.compile(r"[\\^√π²³=]")


class Refused(ValueError):  # noqa: N818 (a verdict on data more than an error)
    """A text that no trustworthy question or gold can be read from.

    Attributes:
      reason: a short code, counted in reports.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(detail)
        self.reason = reason


@dataclasses.dataclass(frozen=True)
class Sample:
    """A question as a data set has it.

    Attributes:
      question, answer: texts; the answer may be a whole solution.
      images: as the row has them.
      choices: of a column of their own; otherwise they are sought in the question.
      turn: of the row; None where a row has one question.
      kind: where the data set says it.
      tolerance: of numbers; None: their own decimals.
      own_words: the question stays as it is, choices and image marks included.
      answer_is: "gold" itself, a "turn" that states it, or a "solution" that ends in it.
      more: what else goes into an item's metadata.
    """

    question: str
    answer: str
    images: Sequence[Any] = ()
    choices: Sequence[str] | None = None
    turn: int | None = None
    kind: str | None = None
    tolerance: float | None = None
    own_words: bool = False
    answer_is: str = "gold"
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def normalise(sample: Sample) -> dict[str, Any]:
    """Returns question, answer, kind, choices and tolerance; the answer verifies against itself.

    Raises:
      Refused: no question, no gold that can be read, or none that is accepted as its own answer.
    """
    question, choices = sample.question, sample.choices
    if not sample.own_words:
        question = questions.strip(question)
    if choices is None:
        text, choices = questions.split_choices(question)
        question = question if sample.own_words or not choices else text
    if not questions.unmarked(question).strip():
        raise Refused("empty_question", "the question has no text")
    gold = sample.answer.strip()
    if sample.answer_is != "gold":
        gold = read_gold(gold, sample.answer_is == "solution")
    kind = sample.kind or kind_of(gold, choices, sample.tolerance)
    if kind not in verify.KINDS:
        raise Refused("bad_kind", f"kind {kind!r} is none of {list(verify.KINDS)}")
    tolerance = sample.tolerance if kind in ("float", "list") else None
    if choices and not sample.own_words:
        question = questions.with_choices(question, choices)
    return {
        "question": question,
        "answer": _checked(gold, kind, choices, tolerance, sample.more.get("ordered")),
        "kind": kind,
        "choices": list(choices) or None,
        "tolerance": tolerance,
    }


def _checked(gold, kind, choices, tolerance, ordered) -> str:
    """Returns the gold in its kept form, accepted as the answer that it is."""
    try:
        answer = golds.normalise_gold(gold, kind, choices=choices)
    except ValueError as error:
        raise Refused("bad_gold", str(error)) from error
    options = {"tolerance": tolerance, "choices": choices, "ordered": ordered}
    verdict = verify.verify(f"\\boxed{{{answer}}}", answer, kind, **options)
    if not verdict.correct:
        raise Refused("bad_gold", f"{answer!r} is no {kind} ({verdict.reason})")
    return answer


# ------------------------------------------------------------------------------ golds
def read_gold(answer: str, is_solution: bool = False) -> str:
    """Returns the gold in an answer: what it states at its end, or all of a short one.

    Raises:
      Refused: nothing is stated, or the last sentence of a solution is no short answer.
    """
    text = answer.strip()
    if not text:
        raise Refused("no_gold", "the answer is empty")
    last = text.split("\n")[-1].strip()
    if match := _LETTER.search(last):
        return match[1].upper()
    if stated := _STATED.findall(last):
        return stated[-1].strip()
    if is_solution:
        return _concluded(last)
    if "\n" in text or len(text) > _LONGEST:
        raise Refused("no_gold", f"no answer is stated in {text[-60:]!r}")
    return text.removesuffix(".")


def _concluded(line: str) -> str:
    """Returns the last number of the last sentence, or all of it if it is a few words."""
    sentence = re.split(r"(?<=[.!?])\s+", line)[-1].rstrip(". ")
    if numbers := _NUMBER.findall(sentence):
        return numbers[-1].replace("$", "").replace("−", "-")
    if len(sentence.split()) > _MOST_WORDS:
        raise Refused("no_gold", f"no short answer in {sentence[-60:]!r}")
    return sentence


def kind_of(gold: str, choices: Sequence[str], tolerance: float | None = None) -> str:
    """Returns the kind of a gold; with a tolerance whole numbers are real, but years.

    Raises:
      Refused: it is a text too long to be compared by spelling.
    """
    if choices or re.fullmatch(r"\(?[A-J]\)?", gold):
        return "choice"
    if scalars.yes_or_no(gold) and len(gold.split()) == 1:
        return "yesno"
    if re.fullmatch(r"[\[(].*[,;].*[\])]", gold):
        return "list"
    if (number := answers.number(gold)) is not None:
        is_whole = "." not in gold and number[0] == number[0].to_integral_value()
        is_year = re.fullmatch(r"(?:1[89]|20)\d\d", gold) is not None
        return "int" if is_whole and (tolerance is None or is_year) else "float"
    if _FORMULA.search(gold):
        return "expr"
    if len(gold) > _LONGEST:
        raise Refused("long_gold", f"{gold[:60]!r} is too long to compare by spelling")
    return "text"
