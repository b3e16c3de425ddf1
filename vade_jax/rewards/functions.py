"""The user's own rewards: plain functions of a batch of answers, called as TRL calls them.

    def brevity(completions, **kwargs):
        return [float(len(text) < 400) for text in functions.texts(completions)]

`--config.reward.function=path/to/file.py:brevity` makes it the reward of a run. It gets keyword
arguments, each a list with an entry for each answer: `prompts`, `completions` (chats), `completion_ids`
(tokens), and every column of the data. It returns a list with a reward for each answer, None meaning no
verdict; or two lists, the rewards and whether each answer is correct. It may be async. It runs in the process
of `rewards.process`. See docs/rewards.md.
"""

import asyncio
import contextlib
import copy
import dataclasses
import functools
import inspect
import math
import numbers
import pickle
import sys
import threading
import typing
from collections.abc import Callable, Coroutine, Mapping, Sequence, Set
from typing import Any

from vade_jax import imports
from vade_jax.rewards import process, verify
from vade_jax.rewards.process import RewardFailure as RewardFailure

if typing.TYPE_CHECKING:  # types imports jax, which rewards must not
    import numpy as np

    from vade_jax import types

RULES = "rules"  # the name of the built-in verifiers among the functions
_SHOWN = 100  # last characters of an answer in an error
_ALONE = threading.Lock()  # calls in the main thread follow each other


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The judgement of one answer by one judge."""

    reward: float  # NaN: no verdict
    # 0 or 1; NaN: no verdict, even if other judges have one; None: this judge gives only rewards.
    correct: float | None
    extracted: str | None = None  # what was compared with the gold answer
    reason: str = ""  # such as those of `verify.Verdict`

    @property
    def is_known(self) -> bool:
        """Whether the answer has both numbers."""
        return not (math.isnan(self.reward) or self.correct is None or math.isnan(self.correct))


UNKNOWN = Judgement(math.nan, math.nan, reason="no_verdict")
Texts = Sequence[str]
Tokens = Sequence["np.ndarray | Sequence[int]"] | None
# (item, texts of all answers to it, their tokens) -> a judgement of each
Judge = Callable[["types.Item", Texts, Tokens], list[Judgement]]


# ------------------------------------------------------------------------------ what it is given
def texts(chats: Sequence[Any]) -> list[str]:
    """Returns the text of each of `prompts` or `completions`: of its last message if it is a chat."""
    contents = [chat if isinstance(chat, str) else chat[-1]["content"] for chat in chats]
    return [
        content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        for content in contents
    ]


def arguments(item: "types.Item", answers: Texts, tokens: Tokens) -> dict[str, list[Any]]:
    """Returns the keyword arguments of a function, for all answers to one item.

    Without tokens, as in evaluation, there are no `completion_ids`. If the file's columns are kept, a column
    replaces the item's value of the same name.
    """
    row = {"id": item.uid, "question": item.question, "answer": item.answer, "kind": item.kind}
    row |= item.metadata
    row |= {name: x for name, x in item.columns.items() if x is not None or name not in row}
    # A copy for each answer, so that a function that changes one does not affect the others.
    columns = {name: [copy.deepcopy(value) for _ in answers] for name, value in row.items()}
    columns["prompts"] = [[{"role": "user", "content": item.question}] for _ in answers]
    columns["completions"] = [[{"role": "assistant", "content": text}] for text in answers]
    if tokens is not None:
        columns["completion_ids"] = [list(map(int, x)) for x in tokens]
    return columns


# ------------------------------------------------------------------------------ one function
@dataclasses.dataclass(frozen=True)
class UserFunction:
    """One function as a `Judge`."""

    name: str  # as the user wrote it
    function: str | Callable[..., Any]  # its path, or itself if cloudpickle can send it
    timeout_s: float  # of a call; if it takes longer, the answers have no verdict
    concurrency: int = 1  # 1: calls follow each other in the main thread; more: in threads

    def __call__(self, item: "types.Item", answers: Texts, tokens: Tokens) -> list[Judgement]:
        """Judges all answers to one item; raises RewardFailure, which names the row."""
        try:
            if self.concurrency > 1:
                with contextlib.suppress(process.Ended):  # by another call: repeat this one alone
                    return self._judged(item, answers, tokens)
            with _ALONE:
                return self._judged(item, answers, tokens)
        except TimeoutError:
            return [dataclasses.replace(UNKNOWN, reason="timeout")] * len(answers)
        except Exception as error:
            raise RewardFailure(
                f"reward.function {self.name!r}: {process.message_of(error)}; at row {item.uid!r}, among the answers "
                f"{[text[-_SHOWN:] for text in answers]!r:.500}"
            ) from error

    @functools.cached_property
    def _source(self) -> str | bytes:
        if isinstance(self.function, str):
            return self.function
        import cloudpickle

        return cloudpickle.dumps(self.function)

    def _judged(self, item, answers, tokens) -> list[Judgement]:
        load(self._source)
        columns = arguments(item, answers, tokens)
        call = (_judge, self._source, columns, len(answers), self.timeout_s)
        is_many = self.concurrency > 1
        return process.running().call(*call, timeout_s=self.timeout_s, in_thread=is_many)


def load(source: str | bytes) -> None:
    """Imports a function in its process, which may take long; raises ValueError."""
    there = process.running()
    if source not in there.imported:
        there.call(_check, source, sys.path)
        there.imported.add(source)


# ------------------------------------------------------------------------------ in its process
@functools.cache  # training, validation and the check share one function and its counts
def _function(source: str | bytes) -> Callable[..., Any]:
    """Returns the function at a path, or in a pickle."""
    if isinstance(source, bytes):
        return pickle.loads(source)
    try:
        function = imports.load(source, "reward.function", more=f", or {RULES!r}")
    except ValueError as error:
        raise process.Failure(str(error)) from error
    if not callable(function):
        kind = type(function).__name__
        raise process.Failure(f"reward.function={source!r}: it is {kind}, not a function")
    return function


def _check(source: str | bytes, path: Sequence[str]) -> None:
    sys.path += [folder for folder in path if folder not in sys.path]  # the run may have new ones
    _function(source)


def _judge(source, columns, num_answers, timeout_s) -> Any:
    returned = _function(source)(**columns)
    if is_async(_function(source)):
        return _awaited(returned, num_answers, timeout_s + 1)  # the run's own limit comes first
    return _judgements(returned, num_answers)


async def _awaited(returned: Coroutine, num_answers: int, limit_s: float) -> list[Judgement]:
    try:
        async with asyncio.timeout(limit_s):
            return _judgements(await returned, num_answers)
    except SystemExit as error:  # it would end the loop and all later calls
        raise RuntimeError(f"SystemExit: {error}") from error


def _judgements(returned: Any, num_answers: int) -> list[Judgement]:
    """Returns a function's judgement of each answer; raises ValueError if its result cannot be read."""
    rewards, correct = as_pair(returned)
    reward_N = _numbers("rewards", rewards, num_answers)
    if correct is None:
        return [Judgement(reward, None) for reward in reward_N]
    correct_N = _numbers("values of correct", correct, num_answers)
    if wrong := [x for x in correct_N if not (math.isnan(x) or x in (0, 1))]:
        raise ValueError(f"it returned correct={wrong[0]}: must be True, False or None")
    return [Judgement(*pair) for pair in zip(reward_N, correct_N, strict=True)]


def as_pair(returned: Any) -> tuple[Any, Any]:
    """Returns the rewards in a function's result, and which answers are correct, or None."""
    is_pair = isinstance(returned, tuple) and len(returned) == 2
    if is_pair and not any(x is None or isinstance(x, numbers.Real) for x in returned):
        return returned
    return returned, None


def _numbers(what: str, values: Any, expected: int) -> list[float]:
    """Returns floats, NaN for None."""
    if not hasattr(values, "__len__") or isinstance(values, str | bytes | Mapping | Set):
        raise ValueError(f"it returned {type(values).__name__}, no list of {what}")
    if len(values) != expected:
        raise ValueError(f"it returned {len(values)} {what} for {expected} answers")
    floats = [math.nan if x is None else float(x) for x in values]
    if any(map(math.isinf, floats)):
        raise ValueError(f"it returned infinite {what}")
    return floats


def is_async(function: Callable[..., Any]) -> bool:
    """Returns whether what a function returns must be awaited."""
    return any(map(inspect.iscoroutinefunction, (function, type(function).__call__)))


# ------------------------------------------------------------------------------ the built-in reward
def by_rules(form: str, format_weight: float, opening: str = "") -> Judge:
    """Returns the judge by `verify`, with reward (1 - w) * correct + w * well formed.

    Args:
        form: the required format, a key of `answers.FORMATS`.
        format_weight: w, the share of the format.
        opening: a tag at the end of the prompt; the answer continues after it, or repeats it.
    """

    def judged(item: "types.Item", text: str) -> Judgement:
        text = text if text.lstrip().startswith(opening.strip()) else opening + text
        verdict = verify.verify_item(text, item, form=form)
        value = (1 - format_weight) * verdict.correct + format_weight * verdict.well_formed
        return Judgement(value, float(verdict.correct), verdict.extracted, verdict.reason)

    return lambda item, texts, tokens: [judged(item, text) for text in texts]


def overlong_penalty(length: int, max_tokens: int, buffer: int) -> float:
    """Returns the penalty for an answer's length in tokens, in -1 .. 0 (arXiv 2503.14476, Eq. 13).

    0 up to max_tokens - buffer, then linear, -1 at max_tokens; with a buffer of 0 no length costs anything.
    The end token counts. An answer that was cut off has max_tokens tokens, so it costs -1.
    """
    if not buffer:
        return 0.0
    return max(-1.0, min(0.0, (max_tokens - buffer - length) / buffer))


# ------------------------------------------------------------------------------ several
@dataclasses.dataclass(frozen=True)
class SumOfJudges:
    """A `Judge` that adds up the rewards of several judges.

    A judge without a verdict adds nothing to the reward. An answer has no verdict if no judge has one, if a
    call took too long, or if no judge decides whether it is correct.
    """

    judges: Sequence[Judge]  # at least one
    weights: Sequence[float]
    # Above this reward an answer is correct if no judge decides; if several do, the first one counts
    correct_above: float = 0.5

    def __call__(self, item: "types.Item", answers: Texts, tokens: Tokens) -> list[Judgement]:
        """Judges all answers to one item; raises RewardFailure."""
        each = [judge(item, answers, tokens) for judge in self.judges]
        return [self._sum(judgements) for judgements in zip(*each, strict=True)]

    def _sum(self, judgements: Sequence[Judgement]) -> Judgement:
        correct = [one.correct for one in judgements if one.correct is not None]
        reward_J = [w * one.reward for w, one in zip(self.weights, judgements, strict=True)]
        rewards = [x for x in reward_J if not math.isnan(x)]
        if not rewards or any(map(math.isnan, correct)):
            late = any(one.reason == "timeout" for one in judgements if not one.is_known)
            return dataclasses.replace(UNKNOWN, reason="timeout") if late else UNKNOWN
        return Judgement(
            reward=sum(rewards),
            correct=correct[0] if correct else float(sum(rewards) > self.correct_above),
            extracted=next((x.extracted for x in judgements if x.extracted is not None), None),
            reason=next((x.reason for x in judgements if x.reason), ""),
        )
