r"""Decides whether an answer to a benchmark is right: by its rules, or by a judge model if it needs one.

Some benchmarks leave answers that their rules cannot read to a judge model. If the judge's reply cannot be
read, it is asked again at a higher temperature. If no reply can be read, or the server gives none, the answer
is scored wrong and counted: no answer leaves the denominator.

`by_rules` needs no judge: it takes the box, the text after "answer is", or a short text as a whole, and
compares like the verifier of training. This is not a published score, and results say so.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import TypeVar

from experiments.evals import numbers
from experiments.evals.benchmarks import base, mathvision
from experiments.evals.chat import Chat, Unanswered
from vade_jax.rewards import answers, functions, verify
from vade_jax.types import Item

T = TypeVar("T")
FAILURES = (
    "undecided",  # rules alone could not read it
    "judge_failed",  # none of the judge's replies could be read
    "judge_unanswered",  # the judge's server gave no reply
    "missing",  # there is no answer to score
)
# Temperatures of the attempts to get a readable reply from a judge; the first is greedy. The original
# scripts never stop asking.
TEMPERATURES = (0.0, 0.5, 0.5, 1.0, 1.0)
_LABEL = re.compile(r"\b(?:answer|option|choice)[\s*]{0,4}(?:is\b|:|=)[\s*:]{0,4}", re.IGNORECASE)
_SHORT = 40  # characters of a text that is an answer as a whole


@dataclasses.dataclass(frozen=True)
class Decision:
    """What became of one answer."""

    extracted: str | None  # the answer in the text, None if none was found
    correct: bool  # False also if nobody could decide
    outcome: str = "rules"  # or "judge", "function", or one of `FAILURES`
    replies: tuple[str, ...] = ()  # of the judge, word for word, in the order that it was asked


Decide = Callable[[Item, str], Decision]  # (item, text), from any thread
MISSING = Decision(None, False, "missing")


# ------------------------------------------------------------------------------ a judge model
def by_judge(benchmark: base.Benchmark, profile: str, chat: Chat) -> Decide:
    """Returns the function that decides on (item, text) by the rules and, where they end, the judge.

    It raises ServerLost when the judge's server is gone; `chat` keeps the replies so far.
    """
    judge = benchmark.judge
    if judge is None:
        return by_rules(benchmark, profile)

    def decide(item: Item, text: str) -> Decision:
        extracted, replies = None, []

        def ask(prompt: str, read: Callable[[str], T | None]) -> T:
            """Returns what the first readable reply says."""
            messages = [{"role": "user", "content": prompt}]
            for seed, temperature in enumerate(TEMPERATURES):
                drawn = {"temperature": temperature, "max_tokens": judge.max_tokens, "seed": seed}
                try:
                    reply = chat.ask(messages, **drawn)
                except Unanswered as error:
                    raise _NoDecision("judge_unanswered") from error
                replies.append(reply)
                found = read(said) if (said := _behind_thoughts(reply)) is not None else None
                if found is not None:
                    return found
            raise _NoDecision("judge_failed")

        try:
            extracted = benchmark.extract(text, item, profile)
            if extracted is None:
                assert judge.extraction_prompt and judge.read_extraction
                extracted = ask(judge.extraction_prompt(text, item), judge.read_extraction)
            correct = benchmark.score(extracted, item, profile)
            if correct is None:
                assert judge.judge_prompt and judge.read_judgement
                correct = ask(judge.judge_prompt(extracted, item), judge.read_judgement)
            outcome = "judge" if replies else "rules"
        except _NoDecision as failure:
            correct, outcome = False, str(failure)
        return Decision(extracted, correct, outcome, tuple(replies))

    return decide


def _behind_thoughts(reply: str) -> str | None:
    """Returns what follows the thoughts of a judge; None if they were cut off and nothing does."""
    _, closed, said = reply.rpartition("</think>")
    return said if closed or "<think>" not in said else None


class _NoDecision(Exception):  # noqa: N818 (says what happened)
    """A judge has come to no decision; the text is one of `FAILURES`."""


# ------------------------------------------------------------------------------ a user's function
def by_functions(judge: functions.SumOfJudges) -> Decide:
    """Returns the function that decides with the user's reward functions, which may raise RewardFailure."""

    def decide(item: Item, text: str) -> Decision:
        (found,) = judge(item, [text], None)
        outcome = "function" if found.is_known else "judge_unanswered"
        return Decision(found.extracted, found.correct == 1, outcome)

    return decide


# ------------------------------------------------------------------------------ rules alone
def by_rules(benchmark: base.Benchmark, profile: str) -> Decide:
    """Returns the function that decides on (item, text) without a judge model."""

    def decide(item: Item, text: str) -> Decision:
        # MathVista's rules take some choice for an empty text.
        extracted = benchmark.extract(text, item, profile) if text.strip() else None
        if extracted is None:
            extracted = _extract(text, item)
        if extracted is None:
            return Decision(None, False, "undecided")
        correct = benchmark.score(extracted, item, profile)
        if correct is None:
            # What a judge would be asked: the same value, or the same to the verifier of training.
            correct = (
                mathvision.close(item.answer, extracted)
                or verify.verify_item(f"\\boxed{{{extracted}}}", item).correct
            )
        return Decision(extracted, correct)

    return decide


def _extract(text: str, item: Item) -> str | None:
    """Returns the box, the tail, or a short text: one choice, or a number without its unit."""
    found = base.boxed(text) or _tail(text)
    if not found:
        plain = answers.plain(text)
        is_short = 0 < len(plain) <= _SHORT and "\n" not in text.strip()
        found = plain if is_short else None
    if found is None:
        return None
    # MathVista's rules make a choice of any text: only what names one may reach them.
    if choices := item.metadata.get("choices"):
        letter = verify.letter(found)
        chosen = letter if letter in base.letters(choices) else None
        return base.spelled(found, choices) or chosen
    if item.kind not in ("int", "float"):
        return found
    number = numbers.number(found)
    return found if number is None else format(number[0], "f")


def _tail(text: str) -> str:
    """Returns what follows the last "answer is", to the end of its sentence."""
    ends = [match.end() for match in _LABEL.finditer(text)]
    if not ends:
        return ""
    line = text[ends[-1] :].partition("\n")[0]
    return answers.plain(re.split(r"\.\s", line)[0].strip(" *"))
