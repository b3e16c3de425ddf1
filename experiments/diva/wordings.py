r"""Paraphrases of a question and hints to it, as a language model writes them.

The prompts for the model, and how its replies are read and checked. A hint must not state
the answer: a list of hints ends before the first one that does (`gives_away`).
"""

import itertools
import re

from vade_jax.rewards import answers, verify
from vade_jax.types import Item

REPHRASE = """\
The text between the lines of dashes is a question, about the pictures above if there are any. Write \
{count} other wordings of it. Each wording asks for exactly the same and has exactly the same answer: \
every number, unit, name, condition, formula and answer option (with its letter, in its order) is \
still there, and so is every <image> mark. Change how sentences are built and which words they use. \
Add no hint, leave nothing out, do not answer it. Put every wording between <wording> and </wording>.
----------
{question}
----------"""
SOLVE = r"""{question}

Work this out one step after another. Then give the final answer alone inside \boxed{{}}."""
HINT = r"""{question}

Work this out. Write your solution as at most {count} short steps, in order, each between <step> and \
</step>. They will be shown to somebody who is stuck: each step leads one stage further than the one \
before, and none of them says what the final answer is. Behind the last step give the final answer \
alone inside \boxed{{}}."""

# A sentence that speaks of the answer, and labels that only count steps.
_ANNOUNCES = re.compile(
    r"\b(?:answer|option|choice|correct|result|solution|therefore|thus|hence)\b|=\s*\S+\W*$",
    re.IGNORECASE,
)
_ANSWERS = re.compile(rf"{_ANNOUNCES.pattern}|^\W*(?:yes|no)\b", re.IGNORECASE)
_LABEL = re.compile(r"^\s*(?:(?:step|hint)\s*)?\d{1,2}\s*[.:)]\s+", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n+")
_NUMBER = re.compile(
    r"\\[dt]?frac\s?\{[^{}]*\}\s?\{[^{}]*\}"
    r"|(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?:\s?/\s?\d+)?(?:\s?\\?%)?"
)
_WORDS = "zero,one,two,three,four,five,six,seven,eight,nine,ten,eleven,twelve"
_COUNTS = {word: str(count) for count, word in enumerate(_WORDS.split(","))}
_OPTION = re.compile(r"(?:^|(?<=\s))\(?([A-J])\s?[.:)]\s*(.+?)(?=\s+\(?[A-J]\s?[.:)]|$)", re.S)


# ------------------------------------------------------------------------------ replies
def read_wordings(reply: str, item: Item, count: int) -> tuple[list[str], list[str]]:
    """Returns the first `count` wordings that can be used, and why others cannot.

    Reasons: "unreadable" (a wording is missing), "same" (as the question or another wording),
    "image_marks" (one is lost), "states_answer".
    """
    texts = _between(reply, "wording")[:count]
    reasons = ["unreadable"] * (count - len(texts))
    seen, kept = {answers.words(item.question)}, []
    names_answer = gives_away(item.question, item)  # then a wording may also
    for text in texts:
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
    verdict = verify.verify_item(reply, item)
    if not verdict.correct:
        different = verdict.reason == "different"
        return [], "wrong_answer" if different else f"answer_{verdict.reason}"
    steps = [_LABEL.sub("", step) for step in _between(reply, "step")]
    if not steps:
        return [], "unreadable"
    hints = itertools.takewhile(lambda step: not gives_away(step, item), filter(None, steps))
    kept = list(itertools.islice(hints, count))
    return kept, "" if kept else "states_answer"


def _between(reply: str, tag: str) -> list[str]:
    return [text.strip() for text in re.findall(rf"<{tag}>(.*?)</{tag}>", reply, re.S)]


# ------------------------------------------------------------------------------ answers
def gives_away(text: str, item: Item) -> bool:
    r"""Returns whether `text` states the answer to `item`.

    A \boxed{} does, and a sentence with the answer in it: as a number of the same value (in digits,
    or a word up to twelve), as its words, or as the letter or the text of the right option. An answer that is
    in the question, and any letter, yes or no, may have to be named: then only a sentence that announces a
    result ("the answer is", "therefore", "= 7" at its end) counts.
    """
    if "\\boxed" in text:
        return True
    sentences = _SENTENCE.split(_LABEL.sub("", text))
    if item.kind in ("choice", "yesno") or _mentions(item.question, item):
        announces = _ANSWERS if item.kind == "yesno" else _ANNOUNCES
        sentences = filter(announces.search, sentences)
    return any(_mentions(sentence, item) for sentence in sentences)


def _mentions(sentence: str, item: Item) -> bool:
    if item.kind in ("int", "float"):
        words = re.findall("[a-z]+", sentence.casefold())
        numbers = _NUMBER.findall(sentence) + [_COUNTS[word] for word in words if word in _COUNTS]
        return any(verify.verify_item(f"\\boxed{{{x}}}", item).correct for x in numbers)
    answer = item.answer
    if item.kind == "choice":
        letter = answers.plain(answer).strip("().: ").upper()[:1]
        if re.search(rf"(?<!\w){letter}(?!\w)", sentence):
            return True
        choices = item.metadata.get("choices") or ()
        options = dict(zip("ABCDEFGHIJ", choices, strict=False)) or dict(
            _OPTION.findall(item.question)
        )
        answer = options.get(letter, "")
    words = answers.words(answer)
    return bool(words) and f" {words} " in f" {answers.words(sentence)} "
