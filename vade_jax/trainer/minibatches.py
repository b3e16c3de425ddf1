"""Cuts prompts and flat rollouts into batches of the fixed shapes that the update is compiled for.

A step's rollouts become mini-batches (one optimizer update each) of micro-batches (as much as fits in memory)
of rows. A row has a prompt and G places for answers to it. A larger group takes several rows, each with a
copy of the prompt; a smaller one leaves places empty.

XLA compiles a program for every shape, so all micro-batches share one set of shapes, and sizes that vary
between steps are rounded up to a few values. Answers of similar length are put together, so that short ones
can run a shorter program (`in_shortest`).
"""

import functools
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import arrays
from vade_jax.data import batching, loading
from vade_jax.types import Array, Batch, Prompt, Rollouts

T = TypeVar("T")
MIN_LENGTH = 16  # tokens; a program for shorter answers would not be worth its compilation


def split(
    prompts: Sequence[Prompt],
    rollouts: Rollouts,
    advantage_N: np.ndarray,
    *,
    prompts_per_minibatch: int,
    prompts_per_microbatch: int,
    answers_per_row: int,
    length_multiple: int,
    ways: int = 1,
    map: loading.Map = map,
) -> list[Batch]:
    """Returns one Batch for each optimizer update; its leaves have a leading micro-batch axis.

    Invalid answers and empty places of rows have an empty mask. `old_logp_NT` and `ref_logp_NT` start as
    copies of the engine's log-probs. Empty rows fill the micro-batches; they cost nothing if a whole
    micro-batch is empty, because `update` skips it.

    Args:
        prompts: M prompts.
        rollouts: the answers to them.
        advantage_N: of each answer.
        prompts_per_minibatch: prompts of one optimizer update.
        prompts_per_microbatch: rows in memory at once, each with a prompt; divides the former.
        answers_per_row: G, the answers that share one copy of their prompt.
        length_multiple: prompts are padded to one of a few multiples of this many tokens.
        ways: the number of devices that share the batch; images are padded to a multiple of it.
        map: maps over micro-batches, for example in threads: cutting images into patches takes time.
    """
    prompt_R, answer_RG = _rows(rollouts.group_N, len(prompts), answers_per_row)
    of_rows = [prompts[m] for m in prompt_R.tolist()]
    sizes = prompts_per_minibatch, prompts_per_microbatch
    microbatches = _microbatches(prompt_R, answer_RG, rollouts, *sizes)
    sizes = batching.shapes(
        *[[of_rows[r] for r in rows] for update in microbatches for rows in update],
        multiple=length_multiple,
        ways=ways,
    )
    advantage_N, mask_NT = np.asarray(advantage_N, np.float32), answer_mask(rollouts)
    # The last answer is empty: -1 in `answer_RG`.
    token_NT, mask_NT, advantage_N, logp_NT = (
        np.concatenate([x_N, np.zeros_like(x_N, shape=(1, *x_N.shape[1:]))])
        for x_N in (rollouts.token_NT, mask_NT, advantage_N, rollouts.logp_NT)
    )

    def lay_out(rows: np.ndarray) -> Batch:
        answer_N = answer_RG[rows].reshape(-1)
        return Batch(
            prompts=batching.collate([of_rows[r] for r in rows], **sizes),
            token_NT=token_NT[answer_N],
            mask_NT=mask_NT[answer_N],
            advantage_N=advantage_N[answer_N],
            rollout_logp_NT=logp_NT[answer_N],
            old_logp_NT=logp_NT[answer_N],
            ref_logp_NT=logp_NT[answer_N],
        )

    return [batching.stack_micro(map(lay_out, rows)) for rows in microbatches]


def _rows(group_N: Array, num_prompts: int, G: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the prompt and the answers of each row, -1 for an empty place; the last row is empty."""
    size_M = np.bincount(group_N, minlength=num_prompts)
    rows_M = -(-size_M // G)
    prompt_R = np.repeat(np.arange(num_prompts), rows_M)
    # The number of each row among those of its prompt.
    number_R = np.arange(len(prompt_R)) - np.repeat(np.cumsum(rows_M) - rows_M, rows_M)
    place_RG = number_R[:, None] * G + np.arange(G)
    first_M = np.cumsum(size_M) - size_M
    answer_RG = np.where(place_RG < size_M[prompt_R, None], first_M[prompt_R, None] + place_RG, -1)
    return np.append(prompt_R, num_prompts - 1), np.append(answer_RG, np.full((1, G), -1), axis=0)


def _microbatches(
    prompt_R: np.ndarray, answer_RG: np.ndarray, rollouts: Rollouts, size: int, per_micro: int
) -> list[np.ndarray]:
    """Returns one array an update: its micro-batches, each with the numbers of `per_micro` rows.

    An update takes `size` prompts. Its rows are sorted by their longest answer if that saves work; the order
    does not change the gradient.
    """
    num_updates, empty = -(-(prompt_R[-1] + 1) // size), len(prompt_R) - 1
    updates = [np.flatnonzero(prompt_R[:empty] // size == i) for i in range(num_updates)]
    # The number of micro-batches is a shape; with uneven groups it would change at every step.
    most = max(map(len, updates))
    number = arrays.bucket(-(-most // per_micro), size // per_micro)
    updates = [arrays.pad_rows(rows, number * per_micro, empty) for rows in updates]
    if number > 1 and len(ladder(rollouts.token_NT.shape[1])) > 1:
        length_N = np.append(rollouts.length_N * rollouts.valid_N, 0)
        longest_R = length_N[answer_RG].max(1)
        updates = [rows[np.argsort(longest_R[rows], kind="stable")] for rows in updates]
    return [rows.reshape(number, per_micro) for rows in updates]


def answer_mask(rollouts: Rollouts) -> np.ndarray:
    """Returns `mask_NT`, float32: 1 on the tokens of valid answers, the end token included."""
    T = rollouts.token_NT.shape[1]
    inside_NT = np.arange(T) < np.asarray(rollouts.length_N)[:, None]
    return (inside_NT & np.asarray(rollouts.valid_N)[:, None]).astype(np.float32)


# ------------------------------------------------------------------------------ short answers
def ladder(width: int) -> tuple[int, ...]:
    """Returns the ascending lengths to which answers of at most `width` tokens may be cut.

    Each length compiles another copy of the whole program, so there are at most three.
    """
    shorter = (-(-width // 4), -(-width // 2))
    return (*(x for x in shorter if MIN_LENGTH <= x < width), width)


def in_shortest(run: Callable[[Batch], T]) -> Callable[[Batch], T]:
    """Returns `run` of the batch without the columns after its longest answer.

    All micro-batches have the shape of the longest allowed answer. The compiled program has a few branches,
    each for another length, and executes one of them. The shape of the result of `run` must not depend on
    the length of answers.
    """

    def shortest(batch: Batch) -> T:
        lengths = ladder(batch.mask_NT.shape[1])
        if len(lengths) == 1:
            return run(batch)
        names = ("token_NT", "mask_NT", "rollout_logp_NT", "old_logp_NT", "ref_logp_NT")

        def cut(length: int, batch: Batch) -> T:
            return run(batch.replace(**{x: getattr(batch, x)[:, :length] for x in names}))

        branches = [functools.partial(cut, length) for length in lengths]
        place_T = jnp.arange(1, 1 + lengths[-1])
        longest = jnp.max(jnp.where(batch.mask_NT > 0, place_T, 0))
        return jax.lax.switch(jnp.searchsorted(jnp.array(lengths), longest), branches, batch)

    return shortest
