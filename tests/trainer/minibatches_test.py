"""Rollouts as fixed shapes, by hand: nothing is lost, moved or computed but padding."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer import small
from vade_jax.trainer import minibatches


def split(sizes, *, mini, micro, **changes):
    sizes = np.array(sizes)
    rollouts = small.rollouts(sizes).replace(**changes)
    batches = small.split(
        small.prompts(len(sizes)),
        rollouts,
        np.arange(1, sizes.sum() + 1),
        prompts_per_minibatch=mini,
        prompts_per_microbatch=micro,
    )
    return rollouts, batches


def test_uneven_groups_by_hand():
    """Prompts of 3 | 8 | 1 | 5 answers in rows of 4: 1, 2, 1 and 2 rows, two at a time."""
    rollouts, (batch,) = split([3, 8, 1, 5], mini=4, micro=2)
    np.testing.assert_array_equal(
        batch.advantage_N,
        [
            [1, 2, 3, 0, 4, 5, 6, 7],
            [8, 9, 10, 11, 12, 0, 0, 0],
            [13, 14, 15, 16, 17, 0, 0, 0],
            [0] * 8,
        ],
    )
    lengths = [prompt.length for prompt in small.prompts(4)]
    expected = [[lengths[m] for m in pair] for pair in ((0, 1), (1, 2), (3, 3), (3, 3))]
    np.testing.assert_array_equal(batch.prompts.length_M, expected)
    empty = batch.advantage_N == 0
    assert batch.mask_NT[empty].sum() == 0
    np.testing.assert_array_equal(batch.mask_NT[~empty].sum(1), rollouts.length_N)
    np.testing.assert_array_equal(batch.token_NT[~empty], rollouts.token_NT)
    np.testing.assert_array_equal(batch.old_logp_NT[~empty], rollouts.logp_NT)
    np.testing.assert_array_equal(batch.ref_logp_NT, batch.old_logp_NT)


def test_a_short_minibatch_is_filled_with_empty_rows():
    _, (first, second) = split([4] * 3, mini=2, micro=2)
    np.testing.assert_array_equal(second.advantage_N, [[9, 10, 11, 12, 0, 0, 0, 0]])
    assert first.token_NT.shape == second.token_NT.shape


def test_invalid_answers_have_an_empty_mask():
    valid_N = np.arange(16) % 3 > 0
    rollouts, (batch,) = split([4] * 4, mini=4, micro=4, valid_N=valid_N)
    np.testing.assert_array_equal(batch.mask_NT[0].sum(1), np.where(valid_N, rollouts.length_N, 0))


@pytest.mark.parametrize("length", [0, 1, 5])
def test_the_mask_covers_the_end_token(length):
    rollouts = small.rollouts([1]).replace(length_N=np.array([length]))
    mask_NT = minibatches.answer_mask(rollouts)
    np.testing.assert_array_equal(mask_NT, [[1] * length + [0] * (5 - length)])


# ------------------------------------------------------------------------------ short answers
@pytest.mark.parametrize(
    ("longest", "width"), [(0, 16), (16, 16), (17, 32), (32, 32), (33, 64), (64, 64)]
)
def test_the_shortest_that_holds_all_answers_is_taken(longest, width):
    """The cut batch's width comes out of the branch, as the number of its columns."""
    mask_NT = np.zeros((3, 64), np.float32)
    mask_NT[1, :longest] = 1
    mask_NT[0, : longest // 2] = 1
    (batch,) = split_masked([4], np.ones((4, 64), np.float32), mini=1, micro=1)
    batch = jax.tree.map(lambda x: jnp.asarray(x[0]), batch)
    batch = batch.replace(mask_NT=jnp.asarray(mask_NT))
    columns = lambda batch: jnp.int32(batch.token_NT.shape[1])
    assert jax.jit(minibatches.in_shortest(columns))(batch) == width


def split_masked(sizes, mask_NT, *, mini, micro):
    """Cuts answers with these masks into micro-batches; a token tells its answer."""
    length_N = mask_NT.sum(1).astype(np.int32)
    token_NT = np.arange(len(mask_NT))[:, None] * mask_NT.astype(np.int32)
    rollouts = small.rollouts(sizes).replace(
        token_NT=token_NT.astype(np.int32),
        logp_NT=-token_NT.astype(np.float32),
        length_N=length_N,
    )
    return small.split(
        small.prompts(len(sizes)),
        rollouts,
        np.arange(len(mask_NT), dtype=np.float32),
        prompts_per_minibatch=mini,
        prompts_per_microbatch=micro,
    )


def test_prompts_of_a_minibatch_are_sorted_by_their_longest_answer():
    """Longest answers 60, 5, 30, 9 | 40, 2, 50, 3: each half sorted, no answer lost or moved."""
    length_N = np.ones(32, int)
    length_N[[1, 6, 11, 12, 17, 22, 27, 28]] = 60, 5, 30, 9, 40, 2, 50, 3
    mask_NT = (np.arange(64) < length_N[:, None]).astype(np.float32)
    first, second = split_masked([4] * 8, mask_NT, mini=4, micro=2)
    groups = [batch.advantage_N[:, ::4].reshape(-1) // 4 for batch in (first, second)]
    np.testing.assert_array_equal(groups, [[1, 3, 2, 0], [5, 7, 4, 6]])
    for batch in (first, second):
        told = batch.advantage_N[..., None] * batch.mask_NT  # an answer's own number
        np.testing.assert_array_equal(batch.token_NT * batch.mask_NT, told)
        np.testing.assert_array_equal(batch.rollout_logp_NT, -told)
        lengths_AN = batch.mask_NT.sum(-1)
        np.testing.assert_array_equal(lengths_AN, length_N[batch.advantage_N.astype(int)])
    prompts = small.prompts(8)
    for batch, order in zip((first, second), ([1, 3, 2, 0], [5, 7, 4, 6]), strict=True):
        found = batch.prompts.length_M.reshape(-1)
        np.testing.assert_array_equal(found, [prompts[m].length for m in order])
