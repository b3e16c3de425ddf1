"""Seconds spent in each part of a step, under verl's names."""

import contextlib
import time
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from vade_jax.types import Metrics, Prompt, Rollouts


class Clock:
    """Times named parts: `with clock("gen"): ...`."""

    def __init__(self):
        self._start = time.perf_counter()
        self.seconds: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds the time of the block to `timing_s/<name>`."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(**{name: time.perf_counter() - start})

    def add(self, **seconds: float) -> None:
        """Adds seconds to parts. Parts that other threads timed overlap with the rest of the step."""
        for name, more in seconds.items():
            self.seconds[name] = self.seconds.get(name, 0.0) + more

    def metrics(
        self, prompts: Sequence[Prompt], rollouts: Rollouts, engine_devices: int = 0
    ) -> Metrics:
        """Returns `timing_s/*`, and the tokens a second of the whole step.

        As in verl, the tokens of a prompt count once for each of its answers, and the throughput is that of
        one training device. Device-seconds are of these and of the `engine_devices` that only answer: a
        device that waits is paid for.
        """
        step = time.perf_counter() - self._start
        context = np.array([prompt.length for prompt in prompts])[rollouts.group_N]
        num_tokens = int(rollouts.length_N.sum() + context.sum())
        return {f"timing_s/{name}": s for name, s in self.seconds.items()} | {
            "timing_s/step": step,
            "perf/device_seconds": step * (jax.device_count() + engine_devices),
            "perf/throughput": num_tokens / step / jax.device_count(),
        }
