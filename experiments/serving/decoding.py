"""A batch of jobs through the engine: few sizes, few programs, seeds that decide."""

import dataclasses
import functools
import hashlib
import secrets
from collections.abc import Callable, Sequence

import jax
import numpy as np

from experiments.serving.batcher import Job
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.local import LocalEngine


@dataclasses.dataclass(frozen=True)
class Answer:
    """Tokens of an answer, the end token included; `finished` is False when it was cut."""

    token_T: np.ndarray
    finished: bool


class Decoder:
    """Decodes batches.

    An engine decodes calls of one size, so there is one of each size that is asked for, and of each
    way to draw tokens; they share the weights. The engines that were not used for longest are let
    go, and what was compiled for them.

    Args:
      make: prompts of a call and sampling -> an engine.
      size: the most prompts of a call.
      programs: engines that are kept.
    """

    def __init__(
        self, make: Callable[[int, Sampling], LocalEngine], *, size: int, programs: int
    ):
        self._engine = functools.lru_cache(programs)(make)
        self._sizes = sizes(size)

    def __call__(self, jobs: Sequence[Job]) -> list[list[Answer]]:
        """Returns the answers of each job; all have one program."""
        size = next(size for size in self._sizes if size >= len(jobs))
        engine = self._engine(size, jobs[0].program)
        counts_M = np.array([job.num_answers for job in jobs])
        rollouts = engine.generate(
            [job.prompt for job in jobs],
            counts_M,
            jax.random.key(0),
            0,
            draw_N=np.concatenate([draws(job) for job in jobs]),
        )
        first_M = np.cumsum(counts_M) - counts_M
        return [
            [_answer(rollouts, n, job) for n in range(first, first + job.num_answers)]
            for job, first in zip(jobs, first_M, strict=True)
        ]


def sizes(size: int) -> list[int]:
    """Returns 1, 4, 16, ... below `size`, and `size`: a lone prompt is not padded to a batch."""
    smaller = [4**k for k in range(size.bit_length()) if 4**k < size]
    return [*smaller, size]


def draws(job: Job) -> np.ndarray:
    """Returns what each answer draws from, int32: the seed and its number decide, or nothing does."""
    if job.seed is None:
        return np.array(
            [secrets.randbits(31) for _ in range(job.num_answers)], np.int32
        )
    texts = [f"{job.seed} {n}" for n in range(job.num_answers)]
    hashes = [hashlib.sha256(text.encode()).digest()[:4] for text in texts]
    return np.array([int.from_bytes(x) >> 1 for x in hashes], np.int32)


def _answer(rollouts, n, job):
    length, longest = int(rollouts.length_N[n]), job.sampling.max_tokens
    return Answer(
        token_T=np.asarray(rollouts.token_NT[n, : min(length, longest)]),
        finished=bool(rollouts.finished_N[n]) and length <= longest,
    )
