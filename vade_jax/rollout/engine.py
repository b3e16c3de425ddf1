"""The contract of a rollout engine."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import numpy as np

from vade_jax.types import Array, Metrics, Params, Prompt, Rollouts

# Takes a prompt's place m and the tokens of all its answers, in any order of prompts, from any
# thread, once a prompt: rewards are scored while other answers are still being made.
OnGroup = Callable[[int, Sequence[np.ndarray]], None]


def ignore(m: int, answers: Sequence[np.ndarray]) -> None:
    """Waits for `generate` to return instead."""


@dataclasses.dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. Static: a change compiles anew."""

    temperature: float = 1.0  # 0 takes the most likely token
    top_p: float = 1.0
    top_k: int = 0  # 0: all rows
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

        `key` decides every draw: the same call gives the same answers (an engine that batches
        freely: up to its rounding). `sampling` overrides the engine's own, for evaluation.

        Raises:
            ValueError: the engine holds another version of the weights than `params_version`.
            EngineFailure: answers are missing and all retries are used up.
        """

    def sync(self, params: Params, version: int) -> None:
        """Takes new weights."""

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
