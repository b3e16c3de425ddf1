"""The interface of a rollout engine, which makes answers with log-probs from prompts and weights."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax
import numpy as np

from vade_jax.types import Params, Prompt, Rollouts

# Called once per prompt, as soon as its last answer is ready, with the prompt's index m and the tokens of
# all its answers. Calls may come in any order and from any thread. This lets rewards be scored while other
# answers are still being generated.
OnGroup = Callable[[int, Sequence[np.ndarray]], None]


def ignore(m: int, answers: Sequence[np.ndarray]) -> None:
    """Does nothing: the `OnGroup` of callers that wait for `generate` to return."""


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Static under jit: each new value compiles a new program."""

    temperature: float = 1.0  # 0: always the most likely token
    top_p: float = 1.0
    top_k: int = 0  # 0: the entire vocabulary
    max_tokens: int = 2048


class Engine(Protocol):
    """Makes rollouts from prompts with the newest weights that it was given."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        num_rollouts_M: np.ndarray,
        key: jax.Array,
        params_version: int,
        sampling: Sampling | None = None,
        on_group: OnGroup = ignore,
    ) -> Rollouts:
        """Returns `num_rollouts_M[m]` answers to each prompt m, on the host.

        Args:
            prompts: M prompts.
            num_rollouts_M: int, the number of answers to each prompt; may be 0.
            key: decides every draw, so the same call returns the same answers. In an engine that
                chooses its own batches, rounding may still change them.
            params_version: the version of the weights that must make the answers.
            sampling: replaces the engine's own, for evaluation.
            on_group: see `OnGroup`.

        Raises:
            ValueError: the engine holds another version of the weights than `params_version`.
            EngineFailure: answers are missing, or were made by other weights.
        """
        ...

    def sync(self, params: Params, version: int) -> None:
        """Takes new weights; after it returns, every answer is made with them."""

    def close(self) -> None:
        """Frees the engine's resources."""


def check_version(expected: int, held: int | None) -> None:
    """Raises ValueError unless the engine holds the version of the weights that a call asks for."""
    if expected != held:
        raise ValueError(
            f"rollouts of weights {expected} were asked for, but the engine holds version {held}: "
            "sync it first"
        )


class Answer(NamedTuple):
    """One answer: its tokens, the end token included, and their log-probs."""

    token_T: np.ndarray
    logp_T: np.ndarray
    finished: bool  # False if the answer was cut off at the length limit


def to_rollouts(
    answers_N: Sequence[Answer],
    num_rollouts_M: np.ndarray,
    *,
    max_tokens: int,
    pad: int,
    params_version: int,
) -> Rollouts:
    """Returns the answers to all prompts, in the order of the prompts, padded to `max_tokens`."""
    N = len(answers_N)
    token_NT = np.full((N, max_tokens), pad, np.int32)
    logp_NT = np.zeros((N, max_tokens), np.float32)
    for n, answer in enumerate(answers_N):
        token_NT[n, : len(answer.token_T)] = answer.token_T
        logp_NT[n, : len(answer.logp_T)] = answer.logp_T
    length_N = np.array([len(answer.token_T) for answer in answers_N], np.int32)
    finished_N = np.array([answer.finished for answer in answers_N], bool)
    return flat(token_NT, logp_NT, length_N, finished_N, num_rollouts_M, params_version)


def flat(
    token_NT: np.ndarray,
    logp_NT: np.ndarray,
    length_N: np.ndarray,
    finished_N: np.ndarray,
    num_rollouts_M: np.ndarray,
    params_version: int,
) -> Rollouts:
    """Returns rollouts from a complete list of answers, in the order of their prompts."""
    groups = np.arange(len(num_rollouts_M), dtype=np.int32)
    return Rollouts(
        token_NT=token_NT,
        length_N=length_N,
        logp_NT=logp_NT,
        group_N=np.repeat(groups, num_rollouts_M),
        finished_N=finished_N,
        valid_N=np.ones(len(length_N), bool),
        params_version=np.array(params_version, np.int32),
    )


class EngineFailure(RuntimeError):  # noqa: N818 (the name says what happened)
    """The engine cannot continue. The message says what was tried and where to look."""


class EngineLost(EngineFailure):
    """The engine's server is gone. A restarted run gets another one and continues."""
