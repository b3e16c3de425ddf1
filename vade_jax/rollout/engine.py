"""The contract of a rollout engine."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import jax

from vade_jax.types import Array, Params, Prompt, Rollouts


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
    ) -> Rollouts:
        """Returns `num_rollouts_M[m]` answers to prompt m, on the host.

        `key` decides every draw: the same call gives the same answers. `sampling` overrides the
        engine's own, for evaluation.

        Raises:
            ValueError: the engine holds another version of the weights than `params_version`.
        """

    def sync(self, params: Params, version: int) -> None:
        """Takes new weights."""

    def close(self) -> None:
        """Frees what the engine holds."""
