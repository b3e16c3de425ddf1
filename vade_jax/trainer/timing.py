"""Seconds spent in each part of a step, under verl's names, and what XLA compiled in it."""

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from vade_jax.types import Metrics, Prompt, Rollouts

COMPILED = "/jax/core/compile/backend_compile_duration"


class Clock:
    """Times named parts: `with clock("gen"): ...`."""

    def __init__(self):
        self._start = time.perf_counter()
        self._num_compiled = len(_compile_seconds())
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
        """Returns `timing_s/*`, and the tokens a second of generation and of the whole step.

        As in verl, the tokens of a prompt count once for each of its answers, and the throughput is that of
        one training device. Device-seconds are of these and of the `engine_devices` that only answer: a
        device that waits is paid for.
        """
        step = time.perf_counter() - self._start
        answers = int(rollouts.length_N.sum())
        context = int(np.array([prompt.length for prompt in prompts])[rollouts.group_N].sum())
        timings = {f"timing_s/{name}": s for name, s in self.seconds.items()}
        compiled = _compile_seconds()[self._num_compiled :]
        return timings | {
            "timing_s/compile": sum(compiled),
            "perf/compilations": len(compiled),
            "timing_s/step": step,
            "perf/device_seconds": step * (jax.device_count() + engine_devices),
            "perf/throughput": (answers + context) / step / jax.device_count(),
            "perf/gen_tokens_per_s": answers / self.seconds["gen"],
        }


@functools.cache
def _compile_seconds() -> list[float]:
    """Returns a list to which the seconds of every later compilation by XLA are appended."""
    seconds: list[float] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == COMPILED:
            seconds.append(duration_secs)

    jax.monitoring.register_event_duration_secs_listener(listen)
    return seconds
