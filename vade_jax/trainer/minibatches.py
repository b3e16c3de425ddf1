"""Prompts and flat rollouts, laid out as the fixed shapes that the update compiles for."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vade_jax import arrays
from vade_jax.data import batching, loading
from vade_jax.trainer import groups, lengths
from vade_jax.types import Batch, Metrics, Prompt, Rollouts


def split(
    prompts: Sequence[Prompt],
    rollouts: Rollouts,
    advantage_N: np.ndarray,
    *,
    prompts_per_minibatch: int,
    prompts_per_microbatch: int,
    answers_per_row: int,
    length_multiple: int,
    rows_per_microbatch: int = 0,
    ways: int = 1,
    over: loading.Map = loading.in_turn,
) -> list[Batch]:
    """Returns one Batch an optimizer update, leaves with a leading micro-batch axis.

    All of them share one set of shapes. An invalid answer, and a slot of a row that no answer fills,
    has an empty mask. `old_logp_NT` and `ref_logp_NT` start as copies of the engine's log-probs.
    Prompts, images and uneven groups' rows come in few sizes, so a run compiles a handful of programs
    (`lengths` cuts the answers inside of them); rows and images come in multiples of `ways`, what
    the mesh splits a batch into. `rows_per_microbatch` bounds the rows of uneven groups in memory at
    once: always so many, in as many micro-batches as it takes, of which empty ones cost nothing
    (`update` skips them). Where the prompts end within a mini-batch, masked ones fill it. `over` maps
    over the micro-batches, whose images are cut to patches, such as in threads.
    """
    prompts, rollouts, advantage_N = _whole(
        prompts, rollouts, np.asarray(advantage_N), prompts_per_minibatch
    )
    if prompts_per_microbatch < prompts_per_minibatch:
        prompts, rollouts, advantage_N = _by_length(
            prompts, rollouts, advantage_N, prompts_per_minibatch
        )
    advantage_N, mask_NT = np.asarray(advantage_N, np.float32), answer_mask(rollouts)
    first_M = np.searchsorted(rollouts.group_N, np.arange(len(prompts) + 1))
    num_answers_M = np.diff(first_M)
    even = bool(np.all(num_answers_M == answers_per_row))
    firsts = range(0, len(prompts), prompts_per_minibatch)
    laid_out = [
        arrays.rows(num_answers_M[i : i + prompts_per_minibatch], answers_per_row)
        for i in firsts
    ]
    cuts, num_rows = _cuts(
        [group_R for group_R, _ in laid_out],
        prompts_per_minibatch,
        prompts_per_microbatch,
        0 if even else rows_per_microbatch,
    )
    if not (even or rows_per_microbatch):
        num_rows = arrays.bucket(num_rows, 1)
    num_rows += -num_rows % ways
    last = len(prompts) - 1
    members = lambda first, cut: [
        prompts[min(first + cut.prompt + i, last)]
        for i in range(prompts_per_microbatch)
    ]
    shapes = batching.shapes(
        *[members(i, cut) for i, of in zip(firsts, cuts, strict=True) for cut in of],
        multiple=length_multiple,
    )
    shapes["num_images"] += -shapes["num_images"] % ways

    def micro(first, group_R, slot_N, cut):
        low, high = np.searchsorted(
            slot_N, [x * answers_per_row for x in (cut.start, cut.stop)]
        )
        slot_N = slot_N[low:high] - cut.start * answers_per_row
        answers = slice(first_M[first] + low, first_M[first] + high)
        place = lambda x_N: _scatter(x_N[answers], slot_N, num_rows * answers_per_row)
        logp_NT = place(rollouts.logp_NT)
        group_R = group_R[cut.start : cut.stop] - cut.prompt
        return Batch(
            prompts=batching.collate(members(first, cut), **shapes),
            token_NT=place(rollouts.token_NT),
            mask_NT=place(mask_NT),
            group_R=None if even else arrays.pad_rows(group_R, num_rows),
            advantage_N=place(advantage_N),
            rollout_logp_NT=logp_NT,
            old_logp_NT=logp_NT,
            ref_logp_NT=logp_NT,
        )

    return [
        batching.stack_micro(over(functools.partial(micro, first, *rows), of))
        for first, rows, of in zip(firsts, laid_out, cuts, strict=True)
    ]


class _Cut(NamedTuple):
    """A micro-batch: its first prompt, and its rows, within the mini-batch."""

    prompt: int
    start: int
    stop: int


def _cuts(groups_R, prompts_per_minibatch, prompts_per_microbatch, rows_per_microbatch):
    """Returns the micro-batches of every mini-batch, and the rows that each of them has.

    Without `rows_per_microbatch` they have the same number of prompts each. With it, rows as well are
    limited: a group may go on in the next one, and empty ones fill up to few numbers of them.
    """
    least = prompts_per_minibatch // prompts_per_microbatch
    if rows_per_microbatch:
        cuts = [
            _by_rows(group_R, prompts_per_microbatch, rows_per_microbatch)
            for group_R in groups_R
        ]
        number = max(map(len, cuts))
        number = arrays.bucket(number, 2 * least) if number > 1 else 1
        empty = _Cut(0, 0, 0)
        return [of + [empty] * (number - len(of)) for of in cuts], rows_per_microbatch
    edges = np.arange(0, prompts_per_minibatch + 1, prompts_per_microbatch)
    cuts = []
    for group_R in groups_R:
        row = np.searchsorted(group_R, edges).tolist()
        cuts.append(list(map(_Cut, edges[:-1].tolist(), row[:-1], row[1:])))
    return cuts, max(cut.stop - cut.start for of in cuts for cut in of)


def _by_rows(group_R, num_prompts, num_rows):
    """Cuts rows so that no part has more rows, or spans more prompts, than it may."""
    cuts, start = [], 0
    while start < len(group_R):
        prompt = int(group_R[start])
        stop = int(np.searchsorted(group_R, prompt + num_prompts))
        stop = min(stop, start + num_rows)
        cuts.append(_Cut(prompt, start, stop))
        start = stop
    return cuts


def padding(batches: Sequence[Batch]) -> Metrics:
    """Returns which share of the slots for prompts, answers and image patches holds nothing.

    Of the slots that are computed: answers' as `lengths` cuts them.
    """
    share = lambda filled, slots: (
        1 - float(sum(map(np.sum, filled)) / max(sum(slots), 1))
    )
    prompts = [batch.prompts for batch in batches]
    valid = [p.images.valid_BWS for p in prompts]
    masks = [batch.mask_NT for batch in batches]
    return {
        "perf/padding_prompts": share(
            [p.length_M for p in prompts], [p.token_MP.size for p in prompts]
        ),
        "perf/padding_answers": share(
            masks,
            [lengths.num_slots(m) for mask_ANT in masks for m in mask_ANT if m.any()],
        ),
        "perf/padding_images": share(valid, [v.size for v in valid]),
    }


def _whole(prompts, rollouts, advantage_N, size):
    """Repeats the last prompt, with invalid answers, until there are whole mini-batches."""
    if not (missing := -len(prompts) % size):
        return prompts, rollouts, advantage_N
    order_M = np.minimum(np.arange(len(prompts) + missing), len(prompts) - 1)
    taken, order_N = groups.take(rollouts, order_M)
    taken = groups.drop(taken, np.arange(len(order_M)) < len(prompts))
    return [prompts[m] for m in order_M], taken, advantage_N[order_N]


def _by_length(prompts, rollouts, advantage_N, size):
    """Sorts the prompts of every mini-batch by their longest answer, if that saves anything."""
    if len(lengths.ladder(rollouts.token_NT.shape[1])) == 1:
        return prompts, rollouts, advantage_N
    longest_M = np.zeros(len(prompts), np.int32)
    np.maximum.at(longest_M, rollouts.group_N, rollouts.length_N * rollouts.valid_N)
    starts = range(0, len(prompts), size)
    order_M = np.concatenate(
        [i + np.argsort(longest_M[i : i + size], kind="stable") for i in starts]
    )
    rollouts, order_N = groups.take(rollouts, order_M)
    return [prompts[m] for m in order_M], rollouts, advantage_N[order_N]


def answer_mask(rollouts: Rollouts) -> np.ndarray:
    """Returns `mask_NT`, float32: 1 on the tokens of valid answers, the end token included."""
    T = rollouts.token_NT.shape[1]
    inside_NT = np.arange(T) < np.asarray(rollouts.length_N)[:, None]
    return (inside_NT & np.asarray(rollouts.valid_N)[:, None]).astype(np.float32)


def _scatter(x_N, slot_N, num_slots):
    out = np.zeros((num_slots, *x_N.shape[1:]), x_N.dtype)
    out[slot_N] = x_N
    return out
