r"""Decides whether an answer to a benchmark is right: by its rules, or by a judge model if it needs one.

Some benchmarks leave answers that their rules cannot read to a judge model. If the judge's reply cannot be
read, it is asked again at a higher temperature. If no reply can be read, or the server gives none, the answer
counts as wrong: no answer leaves the denominator.

`by_rules` needs no judge: it takes the box, the text after "answer is", or a complete short text, and
compares like the verifier of training. This is not a published score, and the report says so.
"""

import dataclasses
import decimal
import enum
import re
from collections.abc import Callable
from typing import TypeVar

from experiments.evals.benchmarks import base
from experiments.evals.chat import Chat, Unanswered
from vade_jax.rewards import answers, process, verify
from vade_jax.types import Item

T = TypeVar("T")
# Temperatures of the attempts to get a readable reply from a judge; the first is greedy. The original
# scripts never stop asking.
TEMPERATURES = (0.0, 0.5, 0.5, 1.0, 1.0)
_LABEL = re.compile(r"\b(?:answer|option|choice)[\s*]{0,4}(?:is\b|:|=)[\s*:]{0,4}", re.IGNORECASE)
_SHORT = 40  # characters of a text that is an answer by itself


class Failure(enum.StrEnum):
    """Why an answer has no verdict."""

    UNDECIDED = "undecided"  # rules alone could not read it
    JUDGE_FAILED = "judge_failed"  # none of the judge's replies could be read
    JUDGE_UNANSWERED = "judge_unanswered"  # the judge's server gave no reply
    MISSING = "missing"  # there is no answer to score


@dataclasses.dataclass(frozen=True)
class Decision:
    """The decision on one answer."""

    extracted: str | None  # the answer in the text, or None
    correct: bool  # False also without a verdict
    outcome: str = "rules"  # or "judge", or a `Failure`
    replies: tuple[str, ...] = ()  # of the judge, verbatim, in order


Decide = Callable[[Item, str], Decision]  # (item, text), from any thread
MISSING = Decision(None, False, Failure.MISSING)


def by_judge(benchmark: base.Benchmark, profile: str, chat: Chat) -> Decide:
    """Returns the function that decides on (item, text) by the rules and, where they end, the judge.

    It raises ServerLost when the judge's server is gone; `chat` keeps the replies so far.
    """
    judge = benchmark.judge
    if judge is None:
        return by_rules(benchmark, profile)

    def decide(item: Item, text: str) -> Decision:
        replies: list[str] = []
        extracted = benchmark.extract(text, item, profile)
        if extracted is None:
            prompt = judge.extraction_prompt(text, item)
            extracted = _ask(chat, prompt, judge.read_extraction, judge.max_tokens, replies)
            if isinstance(extracted, Failure):
                return Decision(None, False, extracted, tuple(replies))
        correct = benchmark.score(extracted, item, profile)
        if correct is None:
            assert judge.judge_prompt and judge.read_judgement
            prompt = judge.judge_prompt(extracted, item)
            correct = _ask(chat, prompt, judge.read_judgement, judge.max_tokens, replies)
            if isinstance(correct, Failure):
                return Decision(extracted, False, correct, tuple(replies))
        return Decision(extracted, correct, "judge" if replies else "rules", tuple(replies))

    return decide


def _ask(
    chat: Chat, prompt: str, read: Callable[[str], T | None], max_tokens: int, replies: list[str]
) -> T | Failure:
    """Returns the content of a judge's first readable reply; adds all replies to `replies`."""
    for seed, temperature in enumerate(TEMPERATURES):
        options = {"temperature": temperature, "max_tokens": max_tokens, "seed": seed}
        try:
            replies.append(chat.ask([{"role": "user", "content": prompt}], **options))
        except Unanswered:
            return Failure.JUDGE_UNANSWERED
        _, closed, text = replies[-1].rpartition("</think>")
        are_cut_off = not closed and "<think>" in text  # unfinished thoughts
        if not are_cut_off and (value := read(text)) is not None:
            return value
    return Failure.JUDGE_FAILED


# ------------------------------------------------------------------------------ rules alone
def by_rules(benchmark: base.Benchmark, profile: str) -> Decide:
    """Returns the function that decides on (item, text) without a judge model."""

    def decide(item: Item, text: str) -> Decision:
        # MathVista's rules take some choice for an empty text.
        extracted = benchmark.extract(text, item, profile) if text.strip() else None
        if extracted is None:
            extracted = _extract(text, item)
        if extracted is None:
            return Decision(None, False, Failure.UNDECIDED)
        correct = benchmark.score(extracted, item, profile)
        if correct is None:  # here a judge would be asked
            correct = verify.verify_item(f"\\boxed{{{extracted}}}", item).correct
        return Decision(extracted, correct)

    return decide


def _extract(text: str, item: Item) -> str | None:
    """Returns the box, the tail, or a short text: one choice, or a number without its unit."""
    answer = base.boxed(text) or _tail(text)
    if not answer and "\n" not in text.strip() and len(plain := answers.plain(text)) <= _SHORT:
        answer = plain
    if not answer:
        return None
    # MathVista's rules turn any text into a choice, so only a text that names one is passed on.
    if choices := item.metadata.get("choices"):
        letter = verify.letter(answer)
        return base.spelled(answer, choices) or (
            letter if letter in base.letters(choices) else None
        )
    try:
        number = verify.number(answer) if item.kind in ("int", "float") else None
    except (TimeoutError, process.Failure):  # SymPy came to no verdict
        number = None
    if number is None:
        return answer
    return format(decimal.Decimal(number.value.numerator) / number.value.denominator, "f")


def _tail(text: str) -> str:
    """Returns what follows the last "answer is", to the end of its sentence."""
    ends = [match.end() for match in _LABEL.finditer(text)]
    if not ends:
        return ""
    line = text[ends[-1] :].partition("\n")[0]
    return answers.plain(re.split(r"\.\s", line)[0].strip(" *"))
