"""Verdicts on answers to a benchmark, with a language model where its rules ask for one.

A reply that cannot be read is asked for again, warmer, as often as `TEMPERATURES` is long. When none
can be read, or the server has none, the answer is wrong and counted: nothing leaves the denominator.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from vade_jax.evals import rules
from vade_jax.evals.benchmarks import base
from vade_jax.evals.chat import Chat, Unanswered
from vade_jax.types import Item

T = TypeVar("T")
_THOUGHTS_END = "</think>"


def by_model(
    benchmark: base.Benchmark,
    profile: str,
    chat: Chat,
    temperatures: Sequence[float] = base.TEMPERATURES,
) -> rules.Decide:
    """Returns what decides (item, text), from any thread.

    Args:
      benchmark: its own rules come first; without a judge they decide all.
      profile: "paper" or "cot".
      chat: asks the model. Its memory keeps every reply, so nothing is asked twice.
      temperatures: of the attempts; attempt i has seed i.

    Raises (what it returns):
      ServerLost: the judge's server is gone; the replies so far are kept.
    """
    if benchmark.judge is None:
        return rules.by_rules(benchmark, profile)

    def decide(item: Item, text: str) -> rules.Verdict:
        asked = _Asked(chat, temperatures, benchmark.judge)
        extracted, correct = None, False
        try:
            extracted = benchmark.extract(text, item, profile)
            if extracted is None:
                extracted = asked.extraction(text, item)
            correct = benchmark.score(extracted, item, profile)
            if correct is None:
                correct = asked.judgement(extracted, item)
            outcome = "judge" if asked.replies else "rules"
        except _NoVerdict as none:
            correct, outcome = False, none.outcome
        return rules.Verdict(extracted, correct, outcome, tuple(asked.replies))

    return decide


class _NoVerdict(Exception):  # noqa: N818 (says what happened)
    def __init__(self, outcome: str):
        super().__init__(outcome)
        self.outcome = outcome


class _Asked:
    """Asks about one answer and keeps what was said."""

    def __init__(
        self, chat: Chat, temperatures: Sequence[float], judge: base.JudgePrompts
    ):
        self._chat, self._temperatures, self._judge = chat, temperatures, judge
        self.replies: list[str] = []

    def extraction(self, text: str, item: Item) -> str:
        prompt = self._judge.extraction_prompt(text, item)
        return self._persist(prompt, self._judge.read_extraction)

    def judgement(self, extracted: str, item: Item) -> bool:
        prompt = self._judge.judge_prompt(extracted, item)
        return self._persist(prompt, self._judge.read_judgement)

    def _persist(self, prompt: str, read: Callable[[str], T | None]) -> T:
        """Returns what the first readable reply says."""
        messages = [{"role": "user", "content": prompt}]
        limit = self._judge.max_tokens
        for seed, temperature in enumerate(self._temperatures):
            fields = {"temperature": temperature, "max_tokens": limit, "seed": seed}
            try:
                reply = self._chat.ask(messages, **fields)
            except Unanswered as error:
                raise _NoVerdict("judge_unanswered") from error
            self.replies.append(reply)
            found = read(reply.rpartition(_THOUGHTS_END)[2])
            if found is not None:
                return found
        raise _NoVerdict("judge_failed")
