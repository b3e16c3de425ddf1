r"""Verdicts on answers to a benchmark, by its rules; where those are silent, by rules of our own.

Some benchmarks leave what their rules cannot read to a language model. `by_rules` does without: it
takes the box, what follows "answer is", or a short text as it stands, and compares as the verifier of
training does. That is no published score: results say so, and what stays unread is wrong and counted.
"""

import dataclasses
import re
from collections.abc import Callable

from vade_jax.evals.benchmarks import base, mathvision
from vade_jax.rewards import answers, kinds, verify
from vade_jax.types import Item

FAILURES = (
    "undecided",  # rules alone could not read it
    "judge_failed",  # no reply of the judge could be read
    "judge_unanswered",  # the judge's server gave no reply
    "missing",  # there is no answer to score
)
_LABEL = re.compile(
    r"\b(?:answer|option|choice)[\s*]{0,4}(?:is\b|:|=)[\s*:]{0,4}", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"\.\s")
_SHORT = 40  # characters of a text that is an answer as it stands


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What became of one answer.

    Attributes:
      extracted: the answer in the text, None if none was found.
      correct: False too where there is no verdict.
      outcome: "rules", "judge", or one of `FAILURES`.
      replies: of the judge, word for word, in the order that it was asked.
    """

    extracted: str | None
    correct: bool
    outcome: str = "rules"
    replies: tuple[str, ...] = ()


Decide = Callable[[Item, str], Verdict]
MISSING = Verdict(None, False, "missing")


def by_rules(benchmark: base.Benchmark, profile: str) -> Decide:
    """Returns what decides (item, text) without a language model.

    Raises:
      ValueError: the benchmark shows whole answers to a judge, so there is nothing to go by.
    """
    if benchmark.judge and not benchmark.judge.extraction_prompt:
        raise ValueError(
            f"{benchmark.name} has no rules, a judge reads whole answers: give a judge, or take "
            "another scorer of the same benchmark"
        )

    def decide(item: Item, text: str) -> Verdict:
        extracted = benchmark.extract(text, item, profile)
        if extracted is None:
            extracted = _extract(text, item)
        if extracted is None:
            return Verdict(None, False, "undecided")
        correct = benchmark.score(extracted, item, profile)
        if correct is None:
            correct = _same(extracted, item)
        return Verdict(extracted, correct)

    return decide


def _extract(text: str, item: Item) -> str | None:
    """Returns the box, the tail, or a short text: one choice, or a number without its unit."""
    found = base.boxed(text) or _tail(text) or _short(text)
    if found is None:
        return None
    if choices := item.metadata.get("choices"):  # any other text is near one of them
        letter = kinds.letter(found)
        chosen = letter if letter in base.letters(choices) else None
        return base.spelled(found, choices) or chosen
    if item.kind not in ("int", "float"):
        return found
    number = answers.number(found)
    return found if number is None else format(number[0], "f")


def _tail(text: str) -> str | None:
    """Returns what follows the last "answer is", to the end of its sentence."""
    ends = [match.end() for match in _LABEL.finditer(text)]
    if not ends:
        return None
    line = text[ends[-1] :].partition("\n")[0]
    return answers.plain(_SENTENCE_END.split(line)[0].strip(" *")) or None


def _short(text: str) -> str | None:
    plain = answers.plain(text)
    return plain if 0 < len(plain) <= _SHORT and "\n" not in text.strip() else None


def _same(extracted: str, item: Item) -> bool:
    """Returns whether the verifier, or the value of both, says that they are the same."""
    if mathvision.close(item.answer, extracted):
        return True
    return verify.verify_item(f"\\boxed{{{extracted}}}", item).correct
