r"""Extracts a question, its choices, one gold and its kind from the texts of published data sets.

Many questions contain an instruction ("Answer with the letter."). It is removed, because a run adds its own
to every question, and options get one form. An ambiguous text is `Refused` with a reason.
"""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.vade_9k import golds
from vade_jax.data import columns
from vade_jax.rewards import answers, reading, verify
from vade_jax.rewards.values import Number

_PREFIXES = (
    r"hint: please answer the question[^\n]*?at the end\.",
    r"first perform reasoning, then finally select the question from the choices in the "
    r"following format: answer: ?xxx\.?",
    r"based on the image, directly select the correct answer for the following question:",
    r"question:",
)
_BRIEF = """
answer briefly; answer concisely; be succinct; concise answer only; ensure brevity in your answer;
give a very brief answer; keep it brief; keep it short and to the point; make the answer very short;
offer a terse response; offer a very short reply; provide a short and; direct response;
provide a succinct answer; quick response, please; short answer required; write a very short answer;
your answer should be compact; your answer should be very brief; your response must be concise;
provide a short and direct response; give a concise answer
"""
_SUFFIXES = (
    r"answer with the option'?s letter from the given choices directly",
    r"answer the question (?:using|with) a single word or phrase",
    r"answer with the given options directly",
    r"answer the question with yes or no",
    r"answer the question with a short (?:phrase|answer)",
    r"answer the question by selecting only one option from the given options",
    r"answer yes or no",
    r"answer with the letter",
    *(re.escape(wish.strip()) for wish in _BRIEF.split(";")),
)
_PREFIX = re.compile(rf"\A\s*(?:{'|'.join(_PREFIXES)})\s*", re.IGNORECASE)
_SUFFIX = re.compile(rf"(?<=[\s.?!:;)])(?:{'|'.join(_SUFFIXES)})\.?\s*\Z", re.IGNORECASE)
_MARK = re.compile(r"<image\s?\d*>\s*")
_CONTEXT = re.compile(r"\A\s*context:.*\n", re.IGNORECASE)  # ScienceQA's hint, see `published`
_HEADER = re.compile(r"\s*(?:choices|options)\s*:\s*", re.IGNORECASE)
_LISTED = re.compile(r"\s*\(?([A-J])\)?\s*[.:)]?\s*(\S.*)")  # under a header
_LABELLED = re.compile(r"\s*(?:\(([A-J])\)|([A-J])\s*[.:)])\s*(\S.*)")
_LETTER = re.compile(r"answer\s*:\s*\(?([A-J])\)?\.?\s*$", re.IGNORECASE)
_STATED = re.compile(r"(?:the answer is:?|answer\s*:)\s*(.+?)\.?$", re.IGNORECASE)
_LONGEST = 40  # characters of a gold without a solution
_MOST_WORDS = 5  # of a gold read from a solution
_NUMBER = re.compile(r"(?<![\w.])[-−]?\$?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:/\d+)?%?(?!\w)")
_SHOWN = re.compile(rf"(?:=|≈|\b(?:is|are|was|equals|be|of))\s*({_NUMBER.pattern})\s*\Z")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_SIGN = re.compile(r"\w+|[-−+*/^<>=≤≥≠±√×÷!%|]")
_FORMULA = re.compile(r"[\\^√π²³=]")
_UNION = re.compile(r"\\infty|∞|\\cup|∪")  # of intervals
_SIGNED = re.compile(r"[-−+*/!()\d]")  # also a formula, unless it is in words


class Refused(columns.RejectedItem):
    """A text from which no trustworthy question or gold can be read; the caller knows the row."""

    def __init__(self, reason: str, detail: str):
        super().__init__("", reason, detail)


@dataclasses.dataclass(frozen=True)
class Sample:
    """A question as in the data set."""

    question: str
    answer: str  # the gold, or a text that has it: see `answer_is`
    images: Sequence[Any] = ()  # as the row has them
    choices: Sequence[str] | None = None  # of a separate column; None: searched in the question
    turn: int | None = None  # of the row; None where a row has one question
    kind: str | None = None  # where the data set says it
    tolerance: float | None = None  # of numbers, relative; None: their own decimals
    own_words: bool = False  # the question is unchanged, with choices and image marks
    answer_is: str = "gold"  # or a "turn" that states it, or a "solution" that ends in it
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # of an item's metadata


def normalise(sample: Sample) -> dict[str, Any]:
    """Returns question, answer, kind, choices and tolerance; `Refused` unless the answer verifies itself."""
    question, choices = sample.question, sample.choices
    if not sample.own_words:
        question = strip(question)
    if choices is None:
        text, choices = split_choices(question)
        question = question if sample.own_words or not choices else text
    if not unmarked(question).strip():
        raise Refused("empty_question", "the question has no text")
    gold = sample.answer.strip()
    if sample.answer_is != "gold":
        gold = read_gold(gold, sample.answer_is == "solution")
    kind = sample.kind or kind_of(gold, choices, sample.tolerance)
    if kind not in list(verify.KINDS):  # a list of a file, say, cannot be a key
        raise Refused("bad_kind", f"kind {kind!r:.80} is not one of {list(verify.KINDS)}")
    tolerance = sample.tolerance if kind in ("float", "list") else None
    # All values that a run grades with.
    options = {"tolerance": tolerance, "ordered": sample.more.get("ordered")}
    try:
        answer = golds.normalise(gold, kind, choices=choices, **options)
    except ValueError as error:
        raise Refused("bad_gold", str(error)) from error
    if choices and not sample.own_words:
        question = with_choices(question, choices)
    return {
        "question": question,
        "answer": answer,
        "kind": kind,
        "choices": list(choices) or None,
        "tolerance": tolerance,
    }


# ------------------------------------------------------------------------------ questions
def strip(text: str) -> str:
    """Returns `text` without known hints before and instructions after the question."""
    text = text.strip()
    # Several may follow one another.
    while (shorter := _SUFFIX.sub("", _PREFIX.sub("", text)).strip()) != text:
        text = shorter
    return text


def split_choices(text: str) -> tuple[str, tuple[str, ...]]:
    """Returns the question and the texts of its options A, B, ..., or `text` and none.

    Options are the lines after "Choices:", or at least two labelled lines at the end.
    """
    lines = text.rstrip().split("\n")
    headers = [i for i, line in enumerate(lines) if _HEADER.fullmatch(line)]
    if headers:
        start = headers[-1]
        options = [_LISTED.fullmatch(x) for x in lines[start + 1 :] if x.strip()]
    else:
        # Backwards over the labelled lines at the end, to the one that starts with A.
        start, first = len(lines), None
        while start and first != "A" and (match := _LABELLED.fullmatch(lines[start - 1])):
            start, first = start - 1, match[1] or match[2]
        options = [_LABELLED.fullmatch(line) for line in lines[start:]]
    labels = [match and next(filter(None, match.groups()[:-1])) for match in options]
    if len(options) < 2 or labels != [chr(65 + i) for i in range(len(options))]:
        return text, ()
    question = "\n".join(lines[:start]).rstrip()
    return question, tuple(match.groups()[-1].strip() for match in options if match)


def with_choices(question: str, choices: Sequence[str]) -> str:
    """Returns the question with its options in the one form of the data set."""
    lines = [f"({chr(65 + i)}) {choice}" for i, choice in enumerate(choices)]
    return "\n".join([question, "Choices:", *lines])


def unmarked(text: str) -> str:
    """Returns `text` without image marks."""
    return _MARK.sub("", text)


def key(text: str, *, signs: bool = False) -> str:
    """Returns the normal form of a question: its words without hints, context and options.

    With `signs`, operators also count: x + 1 and x - 1 are two questions.
    """
    question, _ = split_choices(strip(_CONTEXT.sub("", unmarked(text))))
    return " ".join(re.findall(_SIGN if signs else r"\w+", question.casefold()))


# ------------------------------------------------------------------------------ golds
def read_gold(answer: str, is_solution: bool = False) -> str:
    """Returns the gold in an answer: stated at its end, or a complete short answer; else `Refused`."""
    text = answer.strip()
    if not text:
        raise Refused("no_gold", "the answer is empty")
    last = text.split("\n")[-1].strip()
    if match := _LETTER.search(last):
        return match[1].upper()
    stated = [match for sentence in _SENTENCE.split(last) if (match := _STATED.search(sentence))]
    if stated:
        return _certain(stated[-1][1].strip())
    if is_solution:
        return _concluded(last)
    if "\n" in text or len(text) > _LONGEST:
        raise Refused("no_gold", f"no answer is stated in {text[-60:]!r}")
    return text.removesuffix(".")


def _certain(stated: str) -> str:
    """Returns the stated answer, unless it is prose around a number ("about 7")."""
    is_number = isinstance(reading.read(stated, numeric=True), Number)
    if not is_number and re.search(r"\d", stated) and answers.is_prose(stated):
        raise Refused("no_gold", f"a number among words: {stated[-60:]!r}")
    return stated


def _concluded(line: str) -> str:
    """Returns the one number of the last sentence, or the one it ends in ("= 7"), or its few words."""
    sentence = _SENTENCE.split(line)[-1].rstrip(". ")
    if numbers := _NUMBER.findall(sentence):
        if len(set(numbers)) > 1 and not (shown := _SHOWN.search(sentence)):
            raise Refused("no_gold", f"several numbers in {sentence[-60:]!r}")
        number = numbers[0] if len(set(numbers)) == 1 else shown[1]
        return number.replace("$", "").replace("−", "-")
    if len(sentence.split()) > _MOST_WORDS:
        raise Refused("no_gold", f"no short answer in {sentence[-60:]!r}")
    return sentence


def kind_of(gold: str, choices: Sequence[str], tolerance: float | None = None) -> str:
    """Returns the kind of a gold; with a tolerance integers are floats, except years."""
    if choices or re.fullmatch(r"\(?[A-J]\)?", gold):
        return "choice"
    if verify.yes_or_no(gold) and len(gold.split()) == 1:
        return "yesno"
    if re.fullmatch(r"[\[(].*[,;].*[\])]", gold):
        is_interval = gold[0] + gold[-1] in ("[)", "(]") or _UNION.search(gold)
        return "expr" if is_interval else "list"  # the brackets of [0, 1) count
    if isinstance(number := reading.read(gold, numeric=True), Number):
        is_whole = "." not in gold and number.value.denominator == 1
        is_year = re.fullmatch(r"(?:1[89]|20)\d\d", gold) is not None
        return "int" if is_whole and (tolerance is None or is_year) else "float"
    if _FORMULA.search(gold) or (_SIGNED.search(gold) and not answers.is_prose(gold)):
        return "expr"
    if len(gold) > _LONGEST:
        raise Refused("long_gold", f"{gold[:60]!r} is too long to compare by spelling")
    return "text"
