"""Answers of few lengths: what is cut away is never anything but padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer import small
from vade_jax.trainer import lengths, minibatches


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (8, (8,)),
        (30, (30,)),
        (31, (16, 31)),
        (32, (16, 32)),
        (63, (16, 32, 63)),
        (2048, (512, 1024, 2048)),
    ],
)
def test_the_ladder(width, expected):
    assert lengths.ladder(width) == expected


@pytest.mark.parametrize(
    ("longest", "width"), [(0, 16), (16, 16), (17, 32), (32, 32), (33, 64), (64, 64)]
)
def test_the_shortest_that_holds_all_answers_is_taken(longest, width):
    """The cut batch's width comes out of the branch, as the number of its columns."""
    mask_NT = np.zeros((3, 64), np.float32)
    mask_NT[1, :longest] = 1
    mask_NT[0, : longest // 2] = 1
    (batch,) = split([4], np.ones((4, 64), np.float32), mini=1, micro=1)
    batch = jax.tree.map(lambda x: jnp.asarray(x[0]), batch)
    batch = batch.replace(mask_NT=jnp.asarray(mask_NT))
    columns = lambda batch: jnp.int32(batch.token_NT.shape[1])
    assert jax.jit(lengths.in_shortest(columns))(batch) == width
    assert lengths.num_slots(mask_NT) == 3 * width


def split(sizes, mask_NT, **cut):
    """Cuts answers with these masks into micro-batches; a token tells its answer."""
    length_N = mask_NT.sum(1).astype(np.int32)
    token_NT = np.arange(len(mask_NT))[:, None] * mask_NT.astype(np.int32)
    rollouts = small.rollouts(sizes).replace(
        token_NT=token_NT.astype(np.int32),
        logp_NT=-token_NT.astype(np.float32),
        length_N=length_N,
    )
    return minibatches.split(
        small.prompts(len(sizes)),
        rollouts,
        np.arange(len(mask_NT), dtype=np.float32),
        prompts_per_minibatch=cut["mini"],
        prompts_per_microbatch=cut["micro"],
        answers_per_row=4,
        length_multiple=32,
    )


def test_prompts_of_a_minibatch_are_sorted_by_their_longest_answer():
    """Longest answers 60, 5, 30, 9 | 40, 2, 50, 3: each half sorted, no answer lost or moved."""
    length_N = np.ones(32, int)
    length_N[[1, 6, 11, 12, 17, 22, 27, 28]] = 60, 5, 30, 9, 40, 2, 50, 3
    mask_NT = (np.arange(64) < length_N[:, None]).astype(np.float32)
    first, second = split([4] * 8, mask_NT, mini=4, micro=1)
    groups = [batch.advantage_N[:, 0] // 4 for batch in (first, second)]
    np.testing.assert_array_equal(groups, [[1, 3, 2, 0], [5, 7, 4, 6]])
    for batch in (first, second):
        told = batch.advantage_N[..., None] * batch.mask_NT  # an answer's own number
        np.testing.assert_array_equal(batch.token_NT * batch.mask_NT, told)
        np.testing.assert_array_equal(batch.rollout_logp_NT, -told)
        lengths_AN = batch.mask_NT.sum(-1)
        np.testing.assert_array_equal(
            lengths_AN, length_N[batch.advantage_N.astype(int)]
        )
    prompts = small.prompts(8)
    for batch, order in zip((first, second), ([1, 3, 2, 0], [5, 7, 4, 6]), strict=True):
        found = batch.prompts.length_M[:, 0]
        np.testing.assert_array_equal(found, [prompts[m].length for m in order])
    padding = minibatches.padding([first, second])["perf/padding_answers"]
    slots = 4 * (16 + 16 + 32 + 64) + 4 * (16 + 16 + 64 + 64)
    np.testing.assert_allclose(padding, 1 - length_N.sum() / slots)
