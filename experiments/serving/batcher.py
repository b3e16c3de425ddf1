"""Requests of many threads, gathered into batches that one thread decodes."""

import dataclasses
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from vade_jax.rollout.engine import Sampling
from vade_jax.types import Prompt

_SHORTEST = 16  # tokens; fewer are decoded to this length and cut
_COLDEST = (
    1e-5  # below, logits over the temperature overflow: the most likely token it is
)


@dataclasses.dataclass(frozen=True, eq=False)
class Job:
    """A prompt that waits for its answers.

    Attributes:
      prompt: what is asked.
      num_answers: to it.
      sampling: how tokens are drawn.
      seed: decides every draw; None: nothing does.
    """

    prompt: Prompt
    num_answers: int
    sampling: Sampling
    seed: int | None = None

    @property
    def program(self) -> Sampling:
        """What is compiled for it: max_tokens is the next power of two, from 16 on.

        Without randomness (temperature below 1e-5, or top_p 0) the rest plays no part.
        """
        asked, longest = self.sampling, _SHORTEST
        while longest < asked.max_tokens:
            longest *= 2
        if asked.temperature < _COLDEST or asked.top_p == 0:
            return Sampling(temperature=0.0, max_tokens=longest)
        return dataclasses.replace(asked, max_tokens=longest)


class Batcher:
    """Gathers jobs of one program, oldest first, and decodes them together.

    Args:
      decode: jobs -> the answers of each.
      size: answers of a batch; a job has no more.
      window_s: how long a job that is first in line waits for others.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[Job]], Sequence[Any]],
        *,
        size: int,
        window_s: float,
    ):
        self._decode, self._size, self._window_s = decode, size, window_s
        self._waiting: list[tuple[Job, Future]] = []
        self._changed, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def submit(self, job: Job) -> Future:
        """Returns the answers to come, or the error of their batch."""
        future: Future = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the batcher is closed")
            self._waiting.append((job, future))
            self._changed.notify_all()
        return future

    def close(self) -> None:
        """Takes no more jobs and returns when those there are decoded."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    def _work(self):
        while batch := self._next():
            jobs, futures = zip(*batch, strict=True)
            try:
                answers = self._decode(jobs)
            except Exception as error:  # whoever waits for it says so
                for future in futures:
                    future.set_exception(error)
                continue
            for future, found in zip(futures, answers, strict=True):
                future.set_result(found)

    def _next(self):
        """Returns the next batch, none when closed and all is done."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return []
            full = lambda: self._closed or self._is_full(self._first())
            self._changed.wait_for(full, timeout=self._window_s)
            batch = self._first()
            self._waiting = [pair for pair in self._waiting if pair not in batch]
            return batch

    def _first(self):
        """Returns the oldest job and those that go with it, as many as fit."""
        program, batch, room = self._waiting[0][0].program, [], self._size
        for job, future in self._waiting:
            if job.program != program:
                continue
            room -= job.num_answers
            if room < 0:
                break
            batch.append((job, future))
        return batch

    def _is_full(self, batch):
        return sum(job.num_answers for job, _ in batch) >= self._size
