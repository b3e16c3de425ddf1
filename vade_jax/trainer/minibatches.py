"""Prompts and flat rollouts, laid out as the fixed shapes that the update compiles for."""

from collections.abc import Sequence

import jax
import numpy as np

from vade_jax import arrays
from vade_jax.data import batching
from vade_jax.trainer import lengths
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
    ways: int = 1,
) -> list[Batch]:
    """Returns one Batch an optimizer update, leaves with a leading micro-batch axis.

    All of them share one set of shapes. An invalid answer, and a slot of a row that no answer fills,
    has an empty mask. `old_logp_NT` and `ref_logp_NT` start as copies of the engine's log-probs.
    Prompts, images and uneven groups' rows come in few sizes, so a run compiles a handful of programs
    (`lengths` cuts the answers inside of them); rows and images come in multiples of `ways`, what
    the mesh splits a batch into.
    """
    if prompts_per_microbatch < prompts_per_minibatch:
        prompts, rollouts, advantage_N = _by_length(
            prompts, rollouts, np.asarray(advantage_N), prompts_per_minibatch
        )
    advantage_N, mask_NT = np.asarray(advantage_N, np.float32), answer_mask(rollouts)
    starts = range(0, len(prompts), prompts_per_microbatch)
    shapes = batching.shapes(
        *[prompts[i : i + prompts_per_microbatch] for i in starts],
        multiple=length_multiple,
    )
    shapes["num_images"] += -shapes["num_images"] % ways
    first_M = np.searchsorted(rollouts.group_N, np.arange(len(prompts) + 1))
    num_answers_M = np.diff(first_M)
    one_row_each = bool(np.all(num_answers_M == answers_per_row))
    num_rows = _rows_per_microbatch(
        num_answers_M, prompts_per_microbatch, answers_per_row
    )
    if not one_row_each:
        num_rows = arrays.bucket(num_rows, 1)
    num_rows += -num_rows % ways

    def micro(start):
        stop = start + prompts_per_microbatch
        answers = slice(first_M[start], first_M[stop])
        group_R, slot_N = arrays.rows(
            num_answers_M[start:stop], answers_per_row, num_rows
        )
        place = lambda x_N: _scatter(x_N[answers], slot_N, num_rows * answers_per_row)
        logp_NT = place(rollouts.logp_NT)
        return Batch(
            prompts=batching.collate(prompts[start:stop], **shapes),
            token_NT=place(rollouts.token_NT),
            mask_NT=place(mask_NT),
            group_R=None if one_row_each else group_R,
            advantage_N=place(advantage_N),
            rollout_logp_NT=logp_NT,
            old_logp_NT=logp_NT,
            ref_logp_NT=logp_NT,
        )

    return [
        batching.stack_micro(
            [
                micro(start)
                for start in range(
                    first, first + prompts_per_minibatch, prompts_per_microbatch
                )
            ]
        )
        for first in range(0, len(prompts), prompts_per_minibatch)
    ]


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
            masks, [lengths.num_slots(mask) for mask_ANT in masks for mask in mask_ANT]
        ),
        "perf/padding_images": share(valid, [v.size for v in valid]),
    }


def _by_length(prompts, rollouts, advantage_N, size):
    """Sorts the prompts of every mini-batch by their longest answer, if that saves anything."""
    if len(lengths.ladder(rollouts.token_NT.shape[1])) == 1:
        return prompts, rollouts, advantage_N
    first_M = np.searchsorted(rollouts.group_N, np.arange(len(prompts) + 1))
    longest_M = np.zeros(len(prompts), np.int32)
    np.maximum.at(longest_M, rollouts.group_N, rollouts.length_N * rollouts.valid_N)
    starts = range(0, len(prompts), size)
    order_M = np.concatenate(
        [i + np.argsort(longest_M[i : i + size], kind="stable") for i in starts]
    )
    order_N = np.concatenate([np.arange(first_M[m], first_M[m + 1]) for m in order_M])
    group_N = np.repeat(np.arange(len(prompts)), np.diff(first_M)[order_M])
    version = rollouts.params_version
    rollouts = jax.tree.map(lambda x: x[order_N], rollouts.replace(params_version=None))
    rollouts = rollouts.replace(group_N=group_N, params_version=version)
    return [prompts[m] for m in order_M], rollouts, advantage_N[order_N]


def answer_mask(rollouts: Rollouts) -> np.ndarray:
    """Returns `mask_NT`, float32: 1 on the tokens of valid answers, the end token included."""
    T = rollouts.token_NT.shape[1]
    inside_NT = np.arange(T) < np.asarray(rollouts.length_N)[:, None]
    return (inside_NT & np.asarray(rollouts.valid_N)[:, None]).astype(np.float32)


def _rows_per_microbatch(num_answers_M, prompts_per_microbatch, answers_per_row):
    rows_M = -(-num_answers_M // answers_per_row)
    return int(rows_M.reshape(-1, prompts_per_microbatch).sum(1).max())


def _scatter(x_N, slot_N, num_slots):
    out = np.zeros((num_slots, *x_N.shape[1:]), x_N.dtype)
    out[slot_N] = x_N
    return out
