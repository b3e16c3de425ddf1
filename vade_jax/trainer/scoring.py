"""From sampled tokens to text, verdicts and rewards."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from concurrent import futures

import numpy as np

from vade_jax.rewards import mix, verify
from vade_jax.types import Item, Metrics, Rollouts


@dataclasses.dataclass(frozen=True)
class Judged:
    """What one answer was worth.

    `correct` is 0 or 1; `reward` mixes in format and length; `reason` is of `verify.Verdict`.
    """

    text: str
    extracted: str | None
    reward: float
    correct: float
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Scores:
    """What all answers of a step were worth, in the order of the rollouts."""

    text_N: list[str]
    extracted_N: list[str | None]
    reward_N: np.ndarray
    correct_N: np.ndarray
    reason_N: list[str]

    def metrics(self) -> Metrics:
        """Returns how many answers were not compared to the end; they count as wrong."""
        return {
            "reward/timeouts": self.reason_N.count("timeout"),
            "reward/crashes": self.reason_N.count("crash"),
        }


# Judges all answers (tokens, the end included) to one question.
Judge = Callable[[Item, Sequence[np.ndarray]], list[Judged]]


def make(
    decode: Callable[[Sequence[int]], str],
    *,
    form: str,
    format_weight: float,
    by_length: Callable[[int], float] = lambda length: 0.0,
) -> Judge:
    """Returns the judge of a run.

    Args:
        decode: tokens to text, special tokens left out.
        form: the format that `well_formed` checks, a key of `rewards.answers.FORMATS`.
        format_weight: its share of the reward.
        by_length: tokens of an answer, the end included -> what is added to its reward; whether it
            is correct stays as it is.
    """

    def judge(item: Item, answers: Sequence[np.ndarray]) -> list[Judged]:
        texts = [decode(tokens) for tokens in answers]
        verdicts = [verify.verify_item(text, item, form=form) for text in texts]
        return [
            Judged(
                text=text,
                extracted=verdict.extracted,
                reward=mix.reward(verdict, format_weight) + by_length(len(tokens)),
                correct=float(verdict.correct),
                reason=verdict.reason,
            )
            for tokens, text, verdict in zip(answers, texts, verdicts, strict=True)
        ]

    return judge


class Ahead:
    """Judges groups in a thread of its own while the engine still makes others.

    Give it to the engine as `on_group`, then ask for `scores`.
    """

    def __init__(self, judge: Judge, items: Sequence[Item]):
        self._judge, self._items = judge, items
        self._pool = futures.ThreadPoolExecutor(1)
        self._groups: dict[int, futures.Future] = {}
        self.seconds = 0.0  # of judging, most of it hidden behind the engine's

    def __call__(self, m: int, answers: Sequence[np.ndarray]) -> None:
        """Takes all answers to prompt m."""
        assert m not in self._groups, f"the answers to prompt {m} came twice"
        self._groups[m] = self._pool.submit(self._timed, self._items[m], answers)

    def scores(self, rollouts: Rollouts) -> Scores:
        """Returns the verdicts in the order of `rollouts`, once all of them are there."""
        self._pool.shutdown()
        groups = [self._groups[m].result() for m in sorted(self._groups)]
        judged = [answer for group in groups for answer in group]
        assert len(judged) == len(rollouts.group_N), "an answer was not reported"
        return Scores(
            text_N=[answer.text for answer in judged],
            extracted_N=[answer.extracted for answer in judged],
            reward_N=np.array([answer.reward for answer in judged], np.float32),
            correct_N=np.array([answer.correct for answer in judged], np.float32),
            reason_N=[answer.reason for answer in judged],
        )

    def _timed(self, item, answers):
        start = time.perf_counter()
        judged = self._judge(item, answers)
        self.seconds += time.perf_counter() - start
        return judged
