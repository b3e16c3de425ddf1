"""Answers of few lengths: a micro-batch of short ones runs a shorter program.

All micro-batches of a run have one shape, that of the longest answer allowed. Each is cut inside the
program to the shortest of a few lengths that holds its own answers; only that branch is executed.
`minibatches.split` puts prompts with answers of like length together.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.types import Array, Batch

T = TypeVar("T")
MIN_LENGTH = 16  # below it another length is not worth a branch


def ladder(width: int) -> tuple[int, ...]:
    """Returns the lengths that answers of at most `width` tokens are cut to, ascending."""
    shorter = (-(-width // 4), -(-width // 2))
    return (*(x for x in shorter if MIN_LENGTH <= x < width), width)


def in_shortest(run: Callable[[Batch], T]) -> Callable[[Batch], T]:
    """Returns `run` on the batch without columns that none of its answers reaches.

    What `run` returns must not have the answers' length in its shape.
    """

    def shortest(batch: Batch) -> T:
        lengths = ladder(batch.mask_NT.shape[1])
        if len(lengths) == 1:
            return run(batch)
        branches = [lambda batch, x=x: run(cut(batch, x)) for x in lengths]
        index = jnp.searchsorted(jnp.array(lengths), longest(batch.mask_NT))
        return jax.lax.switch(index, branches, batch)

    return shortest


def longest(mask_NT: Array) -> jax.Array:
    """Returns the tokens of the longest answer, int32."""
    place_T = jnp.arange(1, mask_NT.shape[1] + 1)
    return jnp.max(jnp.where(mask_NT > 0, place_T, 0))


def num_slots(mask_NT: Array) -> int:
    """Returns the answer tokens that are computed for one micro-batch."""
    lengths = ladder(mask_NT.shape[1])
    return len(mask_NT) * lengths[np.searchsorted(lengths, longest(mask_NT))]


def cut(batch: Batch, length: int) -> Batch:
    """Returns the batch with the first `length` tokens of every answer."""
    names = ("token_NT", "mask_NT", "rollout_logp_NT", "old_logp_NT", "ref_logp_NT")
    return batch.replace(**{name: batch[name][:, :length] for name in names})
