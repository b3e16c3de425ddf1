"""The texts of published questions without what a data set says about the answer's form.

Hints before and wishes behind a question ("Answer with the letter.") are taken off: a run puts its own
instruction behind every question. Options come in one form.
"""

import re
from collections.abc import Sequence

_PREFIXES = (
    r"hint: please answer the question[^\n]*?at the end\.",
    r"first perform reasoning, then finally select the question from the choices in the "
    r"following format: answer: ?xxx\.?",
    r"based on the image, directly select the correct answer for the following question:",
    r"question:",
)
_BRIEF = (
    *("answer briefly", "answer concisely", "be succinct", "concise answer only"),
    *("ensure brevity in your answer", "give a very brief answer", "keep it brief"),
    *("keep it short and to the point", "make the answer very short"),
    *("offer a terse response", "offer a very short reply", "provide a short and"),
    *("direct response", "provide a succinct answer", "quick response, please"),
    *("short answer required", "write a very short answer"),
    *("your answer should be compact", "your answer should be very brief"),
    *("your response must be concise", "provide a short and direct response"),
    "give a concise answer",
)
_SUFFIXES = (
    r"answer with the option'?s letter from the given choices directly",
    r"answer the question (?:using|with) a single word or phrase",
    r"answer with the given options directly",
    r"answer the question with yes or no",
    r"answer the question with a short (?:phrase|answer)",
    r"answer the question by selecting only one option from the given options",
    r"answer yes or no",
    r"answer with the letter",
    *map(re.escape, _BRIEF),
    r"(?:you must )?(?:you )?first think about the reasoning process as an internal monologue"
    r"[^\n]*boxed\{\}",  # verl's own instruction
)
_PREFIX = re.compile(rf"\A\s*(?:{'|'.join(_PREFIXES)})\s*", re.IGNORECASE)
_SUFFIX = re.compile(
    rf"(?<=[\s.?!:;)])(?:{'|'.join(_SUFFIXES)})\.?\s*\Z", re.IGNORECASE
)
_MARK = re.compile(r"<image\s?\d*>\s*")
_HEADER = re.compile(r"\s*(?:choices|options)\s*:\s*", re.IGNORECASE)
_LISTED = re.compile(r"\s*\(?([A-J])\)?\s*[.:)]?\s*(\S.*)")  # under a header
_LABELLED = re.compile(r"\s*(?:\(([A-J])\)|([A-J])\s*[.:)])\s*(\S.*)")


def strip(text: str) -> str:
    """Returns `text` without known hints before and wishes behind the question."""
    shorter = text.strip()
    while (text := shorter) and (
        shorter := _SUFFIX.sub("", _PREFIX.sub("", text)).strip()
    ) != text:
        pass
    return text


def split_choices(text: str) -> tuple[str, tuple[str, ...]]:
    """Returns the question and the texts of its options A, B, ..., or `text` and none.

    Options are the lines behind "Choices:", or at least two labelled lines at the end.
    """
    lines = text.rstrip().split("\n")
    headers = [i for i, line in enumerate(lines) if _HEADER.fullmatch(line)]
    if headers:
        found = [_LISTED.fullmatch(x) for x in lines[headers[-1] + 1 :] if x.strip()]
        start = headers[-1]
    else:
        start = _first_label(lines)
        found = [_LABELLED.fullmatch(line) for line in lines[start:]]
    labels = [m and next(g for g in m.groups()[:-1] if g) for m in found]
    if len(found) < 2 or labels != [chr(65 + i) for i in range(len(found))]:
        return text, ()
    question = "\n".join(lines[:start]).rstrip()
    return question, tuple(match.groups()[-1].strip() for match in found)


def _first_label(lines: Sequence[str]) -> int:
    """Returns where the labelled lines at the end start with A, the end if they do not."""
    start = len(lines)
    while start and (match := _LABELLED.fullmatch(lines[start - 1])):
        start -= 1
        if "A" in match.groups()[:-1]:
            return start
    return len(lines)


def with_choices(question: str, choices: Sequence[str]) -> str:
    """Returns the question with its options in the one form of the data set."""
    lines = [f"({chr(65 + i)}) {choice}" for i, choice in enumerate(choices)]
    return "\n".join([question, "Choices:", *lines])


def unmarked(text: str) -> str:
    """Returns `text` without image marks."""
    return _MARK.sub("", text)


def key(text: str) -> str:
    """Returns what two texts of one question have in common: its words, no hints, no options."""
    return " ".join(re.findall(r"\w+", _bare(text).casefold()))


def _bare(text: str) -> str:
    return split_choices(strip(unmarked(text)))[0]
