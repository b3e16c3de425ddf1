"""Cuts prompts and flat rollouts into batches of the fixed shapes that the update is compiled for.

A step's rollouts become mini-batches (one optimizer update each), which consist of micro-batches (as much as
fits in memory). XLA compiles a program for every shape, so all micro-batches share one set of shapes, and
sizes that vary between steps are rounded up to a few values. Two measures reduce padding: answers of similar
length are put together, so that short ones can run a shorter program (`in_shortest`), and groups of uneven
size fill rows of `answers_per_row` answers.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import arrays
from vade_jax.data import batching, loading
from vade_jax.trainer import collect
from vade_jax.types import Array, Batch, Metrics, Prompt, Rollouts

T = TypeVar("T")
MIN_LENGTH = 16  # tokens; a program for shorter answers would not be worth its compilation


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes into which a step's rollouts are cut.

    Attributes:
        prompts_per_minibatch: prompts of one optimizer update.
        prompts_per_microbatch: prompts in memory at once; divides the former.
        answers_per_row: G, the answers that share one copy of their prompt; a larger group takes
            several rows.
        length_multiple: prompts are padded to one of a few multiples of this many tokens.
        rows_per_microbatch: the number of rows of a micro-batch, if groups are uneven; there are as many
            micro-batches as needed. Empty ones cost nothing, because `update` skips them. 0: as many rows
            as the `prompts_per_microbatch` prompts need.
        ways: the number of devices that share the batch; rows and images are padded to multiples of it.
    """

    prompts_per_minibatch: int
    prompts_per_microbatch: int
    answers_per_row: int
    length_multiple: int
    rows_per_microbatch: int = 0
    ways: int = 1


class Piece(NamedTuple):
    """A micro-batch, as indices into the step's prompts and answers."""

    prompt_M: list[int]
    group_R: np.ndarray  # the prompt of each row, counted within the micro-batch
    answers: slice  # indices of the flat answers
    slot_N: np.ndarray  # the place of each of them: row x answers_per_row + column


def split(
    prompts: Sequence[Prompt],
    rollouts: Rollouts,
    advantage_N: np.ndarray,
    shape: Shape,
    *,
    map: loading.Map = loading.in_turn,
) -> list[Batch]:
    """Returns one Batch for each optimizer update; its leaves have a leading micro-batch axis.

    Invalid answers and empty slots of rows have an empty mask. `old_logp_NT` and `ref_logp_NT` start as
    copies of the engine's log-probs. If the prompts end within a mini-batch, masked prompts fill it.

    Args:
        prompts: M of them.
        rollouts: their answers.
        advantage_N: the answers' advantages.
        shape: the sizes.
        map: maps a function over micro-batches, for example in threads: it cuts images into patches.
    """
    # Sort the answers, then compute places, then make arrays. Only the last part, which cuts images into
    # patches, takes time, and there each micro-batch is independent.
    order_M, is_real_M = _order(rollouts, len(prompts), shape)
    prompts = [prompts[m] for m in order_M]
    rollouts, order_N = collect.take(rollouts, order_M)
    rollouts = collect.drop(rollouts, is_real_M)
    advantage_N = np.asarray(advantage_N, np.float32)[order_N]

    num_answers_M = np.bincount(rollouts.group_N, minlength=len(prompts))
    # With one full row for each prompt the model needs no map from rows to prompts.
    even = bool(np.all(num_answers_M == shape.answers_per_row))
    updates, num_rows = _pieces(num_answers_M, shape, even)
    sizes = batching.shapes(
        *[[prompts[m] for m in piece.prompt_M] for of in updates for piece in of],
        multiple=shape.length_multiple,
    )
    sizes["num_images"] += -sizes["num_images"] % shape.ways
    mask_NT = answer_mask(rollouts)

    def lay_out(piece: Piece) -> Batch:
        def place(x_N: Array) -> np.ndarray:
            out = np.zeros((num_rows * shape.answers_per_row, *x_N.shape[1:]), x_N.dtype)
            out[piece.slot_N] = x_N[piece.answers]
            return out

        logp_NT = place(rollouts.logp_NT)
        return Batch(
            prompts=batching.collate([prompts[m] for m in piece.prompt_M], **sizes),
            token_NT=place(rollouts.token_NT),
            mask_NT=place(mask_NT),
            group_R=None if even else arrays.pad_rows(piece.group_R, num_rows),
            advantage_N=place(advantage_N),
            rollout_logp_NT=logp_NT,
            old_logp_NT=logp_NT,
            ref_logp_NT=logp_NT,
        )

    return [batching.stack_micro(map(lay_out, of)) for of in updates]


def _order(rollouts: Rollouts, num_prompts: int, shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Returns the prompts in the order in which they are cut, and which of them are real.

    The last prompt is repeated, with invalid answers, until the mini-batches are full. Within a mini-batch of
    several micro-batches, prompts are sorted by their longest answer if that saves work; their order does not
    change the gradient.
    """
    size = shape.prompts_per_minibatch
    order_M = np.arange(num_prompts + -num_prompts % size)
    is_real_M = order_M < num_prompts
    order_M = np.minimum(order_M, num_prompts - 1)
    one_length = len(ladder(rollouts.token_NT.shape[1])) == 1
    if shape.prompts_per_microbatch == size or one_length:
        return order_M, is_real_M
    longest_M = np.zeros(num_prompts, np.int32)
    np.maximum.at(longest_M, rollouts.group_N, rollouts.length_N * rollouts.valid_N)
    key_M = np.where(is_real_M, longest_M[order_M], 0)
    by_length_M = np.concatenate(
        [i + np.argsort(key_M[i : i + size], kind="stable") for i in range(0, len(order_M), size)]
    )
    return order_M[by_length_M], is_real_M[by_length_M]


def _pieces(num_answers_M: np.ndarray, shape: Shape, even: bool) -> tuple[list[list[Piece]], int]:
    """Returns the micro-batches of every mini-batch, and the number of rows that each of them has."""
    size, per_row = shape.prompts_per_minibatch, shape.answers_per_row
    bound = 0 if even else shape.rows_per_microbatch
    last, first_N = len(num_answers_M) - 1, np.cumsum([0, *num_answers_M])
    updates = []
    for first in range(0, len(num_answers_M), size):
        group_R, slot_N = arrays.rows(num_answers_M[first : first + size], per_row)
        pieces = []
        for prompt, start, stop in _cuts(group_R, shape, bound):
            low, high = np.searchsorted(slot_N, [start * per_row, stop * per_row])
            pieces.append(
                Piece(
                    # A short mini-batch goes beyond the last prompt, which is then repeated.
                    prompt_M=[
                        min(first + prompt + i, last) for i in range(shape.prompts_per_microbatch)
                    ],
                    group_R=group_R[start:stop] - prompt,
                    answers=slice(first_N[first] + low, first_N[first] + high),
                    slot_N=slot_N[low:high] - start * per_row,
                )
            )
        updates.append(pieces)
    if bound:
        # The number of micro-batches is a shape too, and uneven groups change it every step.
        _fill_up(updates, shape)
        num_rows = bound
    else:
        num_rows = max(len(piece.group_R) for of in updates for piece in of)
        num_rows = num_rows if even else arrays.bucket(num_rows, 1)
    return updates, num_rows + -num_rows % shape.ways


def _cuts(group_R: np.ndarray, shape: Shape, bound: int) -> list[tuple[int, int, int]]:
    """Cuts a mini-batch's rows into micro-batches: (first prompt, first row, end of rows).

    Each has `prompts_per_microbatch` prompts. With `bound` it has at most so many rows as well:
    then a group may go on in the next one.
    """
    most = shape.prompts_per_microbatch
    if not bound:
        edges = np.arange(0, shape.prompts_per_minibatch + 1, most)
        row = np.searchsorted(group_R, edges).tolist()
        return list(zip(edges[:-1].tolist(), row[:-1], row[1:], strict=True))
    cuts, start = [], 0
    while start < len(group_R):
        prompt = int(group_R[start])
        stop = min(int(np.searchsorted(group_R, prompt + most)), start + bound)
        cuts.append((prompt, start, stop))
        start = stop
    return cuts


def _fill_up(updates: list[list[Piece]], shape: Shape) -> None:
    """Appends empty micro-batches until all updates have the same (rounded) number of them."""
    number = max(map(len, updates))
    if number > 1:  # a single micro-batch runs without a scan, in another program
        least = shape.prompts_per_minibatch // shape.prompts_per_microbatch
        number = arrays.bucket(number, 2 * least)
    for first, pieces in enumerate(updates):
        nothing = np.zeros(0, np.int32)
        start = first * shape.prompts_per_minibatch
        empty = Piece(
            prompt_M=list(range(start, start + shape.prompts_per_microbatch)),
            group_R=nothing,
            answers=slice(0, 0),
            slot_N=nothing,
        )
        pieces += [empty] * (number - len(pieces))


def answer_mask(rollouts: Rollouts) -> np.ndarray:
    """Returns `mask_NT`, float32: 1 on the tokens of valid answers, the end token included."""
    T = rollouts.token_NT.shape[1]
    inside_NT = np.arange(T) < np.asarray(rollouts.length_N)[:, None]
    return (inside_NT & np.asarray(rollouts.valid_N)[:, None]).astype(np.float32)


def padding(batches: Sequence[Batch]) -> Metrics:
    """Returns the share of empty slots for prompts, answers and image patches.

    It counts only computed slots: for answers, those that `in_shortest` leaves.
    """

    def empty_share(filled, slots):
        return 1 - float(sum(map(np.sum, filled)) / max(sum(slots), 1))

    prompts = [batch.prompts for batch in batches]
    valid = [p.images.valid_BWS for p in prompts]
    masks = [batch.mask_NT for batch in batches]
    slots = [num_slots(m) for mask_ANT in masks for m in mask_ANT if m.any()]
    return {
        "perf/padding_prompts": empty_share(
            [p.length_M for p in prompts], [p.token_MP.size for p in prompts]
        ),
        "perf/padding_answers": empty_share(masks, slots),
        "perf/padding_images": empty_share(valid, [v.size for v in valid]),
    }


# ------------------------------------------------------------------------------ short answers
def ladder(width: int) -> tuple[int, ...]:
    """Returns the lengths, ascending, to which answers of at most `width` tokens are cut.

    Each length compiles another copy of the whole program, so there are at most three.
    """
    shorter = (-(-width // 4), -(-width // 2))
    return (*(x for x in shorter if MIN_LENGTH <= x < width), width)


def in_shortest(run: Callable[[Batch], T]) -> Callable[[Batch], T]:
    """Returns `run` of the batch without columns that none of its answers reaches.

    All micro-batches have the shape of the longest allowed answer. The compiled program has a few branches,
    each for another length, and executes one of them. The shape of the result of `run` must not depend on
    the length of answers.
    """

    def shortest(batch: Batch) -> T:
        lengths = ladder(batch.mask_NT.shape[1])
        if len(lengths) == 1:
            return run(batch)
        branches = [functools.partial(lambda x, batch: run(cut(batch, x)), x) for x in lengths]
        index = jnp.searchsorted(jnp.array(lengths), longest(batch.mask_NT))
        return jax.lax.switch(index, branches, batch)

    return shortest


def longest(mask_NT: Array) -> jax.Array:
    """Returns the number of tokens of the longest answer, int32."""
    place_T = jnp.arange(1, mask_NT.shape[1] + 1)
    return jnp.max(jnp.where(mask_NT > 0, place_T, 0))


def num_slots(mask_NT: Array) -> int:
    """Returns the number of answer tokens that are computed for a micro-batch."""
    lengths = ladder(mask_NT.shape[1])
    return len(mask_NT) * lengths[np.searchsorted(lengths, longest(mask_NT))]


def cut(batch: Batch, length: int) -> Batch:
    """Returns the batch with the first `length` tokens of every answer."""
    names = ("token_NT", "mask_NT", "rollout_logp_NT", "old_logp_NT", "ref_logp_NT")
    return batch.replace(**{name: getattr(batch, name)[:, :length] for name in names})
