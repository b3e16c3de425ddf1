r"""Paraphrases of a question and hints to it, as a language model writes them.

What the model is asked, how its replies are read, and which of them may be used. A hint must not state
the answer: a list of hints ends before the first one that does (`gives_away`).
"""

import re

from vade_jax.rewards import answers, verify
from vade_jax.types import Item

_REPHRASE = """\
The text between the lines of dashes is a question, about the pictures above if there are any. Write \
{count} other wordings of it. Each wording asks for exactly the same and has exactly the same answer: \
every number, unit, name, condition, formula and answer option (with its letter, in its order) is \
still there, and so is every <image> mark. Change how sentences are built and which words they use. \
Add no hint, leave nothing out, do not answer it. Put every wording between <wording> and </wording>.
----------
{question}
----------"""
_SOLVE = r"""{question}

Work this out one step after another. Then give the final answer alone inside \boxed{{}}."""
_HINT = r"""{question}

Work this out. Write your solution as at most {count} short steps, in order, each between <step> and \
</step>. They will be shown to somebody who is stuck: each step leads one stage further than the one \
before, and none of them says what the final answer is. Behind the last step give the final answer \
alone inside \boxed{{}}."""

# A sentence that speaks of the answer, and labels that only count steps.
_ANNOUNCES = re.compile(
    r"\b(?:answer|option|choice|correct|result|solution|therefore|thus|hence)\b|=\s*\S+\W*$",
    re.IGNORECASE,
)
_LABEL = re.compile(r"^\s*(?:(?:step|hint)\s*)?\d{1,2}\s*[.:)]\s+", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_NUMBER = re.compile(
    r"\\[dt]?frac\s?\{[^{}]*\}\s?\{[^{}]*\}"
    r"|(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:\s?/\s?\d+)?(?:\s?\\?%)?"
)
_WORDS = "zero,one,two,three,four,five,six,seven,eight,nine,ten,eleven,twelve"
_COUNTS = {word: str(count) for count, word in enumerate(_WORDS.split(","))}
_OPTION = re.compile(r"(?:^|(?<=\s))\(?([A-J])\s?[.:)]\s*(.+?)(?=\s+\(?[A-J]\s?[.:)]|$)", re.S)


# ------------------------------------------------------------------------------ requests
def rephrase(item: Item, count: int) -> str:
    """Returns the request for `count` other wordings."""
    return _REPHRASE.format(question=item.question.strip(), count=count)


def solve(question: str) -> str:
    """Returns the request for an answer, which the verifier can read."""
    return _SOLVE.format(question=question.strip())


def hint(item: Item, count: int) -> str:
    """Returns the request for at most `count` hints and the answer."""
    return _HINT.format(question=item.question.strip(), count=count)


# ------------------------------------------------------------------------------ replies
def read_wordings(reply: str, item: Item, count: int) -> tuple[list[str], list[str]]:
    """Returns the first `count` wordings that can be used, and why others cannot.

    Reasons: "unreadable" (a wording is missing), "same" (as the question or another wording),
    "image_marks" (one is lost), "states_answer".
    """
    found = _between(reply, "wording")[:count]
    reasons = ["unreadable"] * (count - len(found))
    seen, kept = {answers.words(item.question)}, []
    names_answer = gives_away(item.question, item)  # then a wording may do so too
    for text in found:
        if not text:
            reasons.append("unreadable")
        elif answers.words(text) in seen:
            reasons.append("same")
        elif text.count("<image>") != item.question.count("<image>"):
            reasons.append("image_marks")
        elif gives_away(text, item) and not names_answer:
            reasons.append("states_answer")
        else:
            kept.append(text)
        seen.add(answers.words(text))
    return kept, reasons


def read_steps(reply: str, item: Item, count: int) -> tuple[list[str], str]:
    """Returns hints that lead to the right answer and "", or none and the reason.

    Reasons: "wrong_answer" or another of `verify.Verdict` (as "answer_no_box"), "unreadable" (no
    steps), "states_answer" (the first step does).
    """
    verdict = verify.verify_item(_without_thoughts(reply), item)
    if not verdict.correct:
        different = verdict.reason == "different"
        return [], "wrong_answer" if different else f"answer_{verdict.reason}"
    found = [_LABEL.sub("", step) for step in _between(reply, "step")]
    kept = []
    for step in filter(None, found):
        if len(kept) == count or gives_away(step, item):
            break
        kept.append(step)
    if not found:
        return [], "unreadable"
    return kept, "" if kept else "states_answer"


def is_answered(reply: str, item: Item) -> bool:
    """Returns whether the reply to `solve` has the right answer."""
    return verify.verify_item(_without_thoughts(reply), item).correct


def _between(reply: str, tag: str) -> list[str]:
    found = re.findall(rf"<{tag}>(.*?)</{tag}>", _without_thoughts(reply), re.S)
    return [text.strip() for text in found]


def _without_thoughts(reply: str) -> str:
    """Returns what a reasoning model says after its thoughts, which may hold drafts."""
    return reply.rpartition("</think>")[2]


# ------------------------------------------------------------------------------ answers
def gives_away(text: str, item: Item) -> bool:
    r"""Returns whether `text` states the answer to `item`.

    A \boxed{} does, and a sentence with the answer in it: as a number of the same value (in digits,
    or a word up to twelve), as its words, or as the letter or the text of the right option. An
    answer that the question itself has, and any letter, yes or no, may have to be named: then only
    a sentence that announces a result ("the answer is", "therefore", "= 7" at its end) counts.
    """
    if "\\boxed" in text:
        return True
    weak = item.kind in ("choice", "yesno") or _mentions(item.question, item)
    return any(
        _mentions(sentence, item) and (not weak or _announces(sentence, item))
        for sentence in _SENTENCE.split(_LABEL.sub("", text))
    )


def _announces(sentence: str, item: Item) -> bool:
    if item.kind == "yesno" and re.match(r"\W*(?:yes|no)\b", sentence, re.IGNORECASE):
        return True
    return _ANNOUNCES.search(sentence.strip()) is not None


def _mentions(sentence: str, item: Item) -> bool:
    if item.kind in ("int", "float"):
        words = re.findall("[a-z]+", sentence.casefold())
        numbers = _NUMBER.findall(sentence)
        numbers += [_COUNTS[word] for word in words if word in _COUNTS]
        boxes = (f"\\boxed{{{number}}}" for number in numbers)
        return any(verify.verify_item(box, item).correct for box in boxes)
    if item.kind == "choice":
        letter = answers.plain(item.answer).strip("().: ").upper()[:1]
        if re.search(rf"(?<!\w){letter}(?!\w)", sentence):
            return True
        if choices := item.metadata.get("choices"):
            options = {chr(65 + i): text for i, text in enumerate(choices)}
        else:
            options = {k: v.strip() for k, v in _OPTION.findall(item.question)}
        option = options.get(letter, "")
        return bool(option) and _has_words(sentence, option)
    return _has_words(sentence, item.answer)


def _has_words(sentence: str, answer: str) -> bool:
    wanted = answers.words(answer)
    return bool(wanted) and f" {wanted} " in f" {answers.words(sentence)} "
