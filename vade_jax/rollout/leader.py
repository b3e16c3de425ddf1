"""One vLLM for a run of several processes: process 0 talks to it, and all get what it answers."""

import collections
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils

from vade_jax.rollout.engine import Answer, Engine, OnGroup, Sampling, ignore, to_rollouts
from vade_jax.rollout.vllm.sync import NamedTensors
from vade_jax.types import Params, Prompt, Rollouts


class LeaderEngine:
    """Implements `Engine` in every process.

    Args:
        engine: the engine, whose `sync` takes what `tensors` returns; None in all processes but the leader.
        sampling: the engine's.
        tensors: params -> (name, array) pairs, which all processes gather together.
        on_leader: runs a function in the leader; an error of it is raised in every process.
    """

    def __init__(
        self,
        engine: Engine | None,
        sampling: Sampling,
        tensors: Callable[[Params], NamedTensors],
        on_leader: Callable[[Callable[[], None]], Any],
    ):
        self._engine, self._sampling = engine, sampling
        self._tensors, self._on_leader = tensors, on_leader

    def generate(
        self,
        prompts: Sequence[Prompt],
        num_rollouts_M: np.ndarray,
        key: jax.Array,
        params_version: int,
        sampling: Sampling | None = None,
        on_group: OnGroup = ignore,
    ) -> Rollouts:
        """See `Engine.generate`. Only the leader reports groups: it scores them."""
        length = (sampling or self._sampling).max_tokens
        nothing = [Answer(np.zeros(0), np.zeros(0), False)] * int(np.sum(num_rollouts_M))
        options = {"max_tokens": length, "pad": 0, "params_version": params_version}
        rollouts = to_rollouts(nothing, num_rollouts_M, **options)  # their shapes, for the others

        def ask():
            nonlocal rollouts
            assert self._engine is not None
            arguments = prompts, num_rollouts_M, key, params_version, sampling, on_group
            rollouts = self._engine.generate(*arguments)

        self._on_leader(ask)
        return multihost_utils.broadcast_one_to_all(rollouts)

    def sync(self, params: Params, version: int) -> None:
        """See `Engine.sync`."""
        tensors = iter(self._tensors(params))
        rest = lambda: collections.deque(tensors, maxlen=0)

        def send():
            assert self._engine is not None
            try:
                self._engine.sync(tensors, version)
            finally:
                rest()  # if it fails, the others do not wait for ever

        if self._engine is None:
            rest()
        self._on_leader(send)

    def close(self) -> None:
        """See `Engine.close`."""
        if self._engine is not None:
            self._engine.close()
