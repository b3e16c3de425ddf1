"""The contract of a rollout engine: prompts and weights go in, answers with their log-probs come out."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import jax
import numpy as np

from vade_jax.types import Metrics, Params, Prompt, Rollouts

# Is called once a prompt, as soon as its last answer is there, in any order of prompts and from any
# thread: with the prompt's place m and the tokens of all its answers. So rewards
# are scored while other answers are still being made.
OnGroup = Callable[[int, Sequence[np.ndarray]], None]


def ignore(m: int, answers: Sequence[np.ndarray]) -> None:
    """The `OnGroup` of callers that wait for `generate` to return."""


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Static under jit: another one compiles anew."""

    temperature: float = 1.0  # 0 takes the most likely token
    top_p: float = 1.0
    top_k: int = 0  # 0: the whole vocabulary
    max_tokens: int = 2048


class Engine(Protocol):
    """Turns prompts into rollouts with the newest weights it was given."""

    def generate(
        self,
        prompts: Sequence[Prompt],
        num_rollouts_M: np.ndarray,
        key: jax.Array,
        params_version: int,
        sampling: Sampling | None = None,
        on_group: OnGroup = ignore,
    ) -> Rollouts:
        """Returns `num_rollouts_M[m]` answers to prompt m, on the host.

        Args:
            prompts: M of them.
            num_rollouts_M: int; may be 0.
            key: decides every draw: the same call gives the same answers (an engine that batches
                freely: up to its rounding).
            params_version: of the weights that must make the answers.
            sampling: overrides the engine's own, for evaluation.
            on_group: see `OnGroup`.

        Raises:
            ValueError: the engine holds another version of the weights than `params_version`.
            EngineFailure: answers are missing and all retries are used up.
        """
        ...

    def sync(self, params: Params, version: int) -> None:
        """Takes new weights; returns when every later answer is made with them."""

    def metrics(self) -> Metrics:
        """Returns what happened since the last call: retries, restarts, seconds of a sync."""
        ...

    def close(self) -> None:
        """Frees what the engine holds."""


def check_version(wanted: int, held: int | None) -> None:
    """Raises ValueError unless an engine holds the weights that it is asked to answer with."""
    if wanted != held:
        raise ValueError(
            f"rollouts of weights {wanted} were asked for, but the engine holds version {held}: "
            "sync it first"
        )


class Answer(NamedTuple):
    """The tokens of one answer, the end token included, and their log-probs."""

    token_T: np.ndarray
    logp_T: np.ndarray
    finished: bool  # False when cut at the length limit


def to_rollouts(
    answers_N: Sequence[Answer],
    num_rollouts_M: np.ndarray,
    *,
    max_tokens: int,
    pad: int,
    params_version: int,
) -> Rollouts:
    """Returns the answers of all prompts, in order, as arrays padded to `max_tokens`."""
    N = len(answers_N)
    token_NT = np.full((N, max_tokens), pad, np.int32)
    logp_NT = np.zeros((N, max_tokens), np.float32)
    for n, answer in enumerate(answers_N):
        token_NT[n, : len(answer.token_T)] = answer.token_T
        logp_NT[n, : len(answer.logp_T)] = answer.logp_T
    groups = np.arange(len(num_rollouts_M), dtype=np.int32)
    return Rollouts(
        token_NT=token_NT,
        length_N=np.array([len(answer.token_T) for answer in answers_N], np.int32),
        logp_NT=logp_NT,
        group_N=np.repeat(groups, num_rollouts_M),
        finished_N=np.array([answer.finished for answer in answers_N], bool),
        valid_N=np.ones(N, bool),
        params_version=np.array(params_version, np.int32),
    )


class EngineFailure(RuntimeError):  # noqa: N818 (says what happened)
    """The engine cannot go on; the message says what was tried and what to look at."""
