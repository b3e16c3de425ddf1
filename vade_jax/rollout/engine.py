"""The contract of a rollout engine: prompts and weights go in, answers with their log-probs come out."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import numpy as np

from vade_jax.types import Array, Metrics, Params, Prompt, Rollouts

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
        num_rollouts_M: Array,
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

    def sync(self, params: Params, version: int) -> None:
        """Takes new weights; returns when every later answer is made with them."""

    def metrics(self) -> Metrics:
        """Returns what happened since the last call: retries, restarts, seconds of a sync."""

    def close(self) -> None:
        """Frees what the engine holds."""


def check_version(wanted: int, held: int | None) -> None:
    """Raises ValueError unless an engine holds the weights that it is asked to answer with."""
    if wanted != held:
        raise ValueError(
            f"rollouts of weights {wanted} were asked for, but the engine holds version {held}: "
            "sync it first"
        )


class EngineFailure(RuntimeError):  # noqa: N818 (says what happened)
    """The engine cannot go on; the message says what was tried and what to look at."""
