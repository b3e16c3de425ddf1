import jax
import numpy as np
import pytest

from tests.trainer import small
from vade_jax.data import loading
from vade_jax.trainer import minibatches

LAYOUT = dict(answers_per_row=4, length_multiple=32)


def split(sizes, *, mini, micro, **changes):
    sizes = np.array(sizes)
    rollouts = small.rollouts(sizes).replace(**changes)
    batches = minibatches.split(
        small.prompts(len(sizes)),
        rollouts,
        np.arange(1, sizes.sum() + 1),
        prompts_per_minibatch=mini,
        prompts_per_microbatch=micro,
        **LAYOUT,
    )
    return rollouts, batches


def test_even_groups_are_one_row_each():
    rollouts, (first, second) = split([4, 4, 4, 4], mini=2, micro=1)
    assert first.group_R is None
    assert first.token_NT.shape == (2, 4, 5)  # micro-batches, answers, tokens
    joined = np.concatenate([first.token_NT, second.token_NT]).reshape(16, 5)
    np.testing.assert_array_equal(joined, rollouts.token_NT)
    np.testing.assert_array_equal(
        second.advantage_N, [[9, 10, 11, 12], [13, 14, 15, 16]]
    )


def test_uneven_groups_by_hand():
    """Prompts of 3 | 8 | 1 | 5 answers in rows of 4: 1, 2, 1 and 2 rows, 3 a micro-batch."""
    rollouts, (batch,) = split([3, 8, 1, 5], mini=4, micro=2)
    np.testing.assert_array_equal(batch.group_R, [[0, 1, 1], [0, 1, 1]])
    np.testing.assert_array_equal(
        batch.advantage_N,
        [
            [1, 2, 3, 0, 4, 5, 6, 7, 8, 9, 10, 11],
            [12, 0, 0, 0, 13, 14, 15, 16, 17, 0, 0, 0],
        ],
    )
    empty = batch.advantage_N == 0
    assert batch.mask_NT[empty].sum() == 0
    np.testing.assert_array_equal(batch.mask_NT[~empty].sum(1), rollouts.length_N)
    np.testing.assert_array_equal(batch.token_NT[~empty], rollouts.token_NT)
    np.testing.assert_array_equal(batch.old_logp_NT[~empty], rollouts.logp_NT)
    np.testing.assert_array_equal(batch.ref_logp_NT, batch.old_logp_NT)


def test_all_minibatches_share_one_set_of_shapes():
    """The images are uneven too: 1, 0, 2 and 1 of them, of 1 to 2 windows."""
    _, (first, second) = split([1, 8, 2, 2], mini=2, micro=1)
    assert (
        first.prompts.images.patch_BWSE.shape == second.prompts.images.patch_BWSE.shape
    )
    assert first.token_NT.shape == second.token_NT.shape == (2, 8, 5)


def test_threads_change_nothing():
    sizes = np.array([1, 8, 2, 2])
    make = lambda **more: minibatches.split(
        small.prompts(4),
        small.rollouts(sizes),
        np.arange(13),
        prompts_per_minibatch=4,
        prompts_per_microbatch=1,
        **LAYOUT,
        **more,
    )
    with loading.Pool(3) as pool:
        (batch,) = make(over=pool.map)
    jax.tree.map(np.testing.assert_array_equal, batch, make()[0])
    assert batch.prompts.images.patch_BWSE.any()


def test_rows_and_images_are_padded_to_what_the_mesh_splits():
    sizes = np.array([3, 8, 1, 5])
    rollouts = small.rollouts(sizes)
    (batch,) = minibatches.split(
        small.prompts(4),
        rollouts,
        np.ones(17),
        prompts_per_minibatch=4,
        prompts_per_microbatch=4,
        ways=4,
        **LAYOUT,
    )
    np.testing.assert_array_equal(batch.group_R, [[0, 1, 1, 2, 3, 3, 0, 0]])
    assert batch.prompts.images.patch_BWSE.shape[1] == 4
    assert batch.mask_NT.sum() == rollouts.length_N.sum()


def test_invalid_answers_have_an_empty_mask():
    valid_N = np.arange(16) % 3 > 0
    rollouts, (batch,) = split([4] * 4, mini=4, micro=4, valid_N=valid_N)
    np.testing.assert_array_equal(
        batch.mask_NT[0].sum(1), np.where(valid_N, rollouts.length_N, 0)
    )


@pytest.mark.parametrize("length", [0, 1, 5])
def test_the_mask_covers_the_end_token(length):
    rollouts = small.rollouts([1]).replace(length_N=np.array([length]))
    mask_NT = minibatches.answer_mask(rollouts)
    np.testing.assert_array_equal(mask_NT, [[1] * length + [0] * (5 - length)])


def test_uneven_rows_come_in_few_sizes():
    """5 rows in 2 micro-batches of 3 and 2, then 7 in one: 1, 2, 3, 4, 6, 8, ... are the sizes."""
    _, (batch,) = split([9, 4, 4, 4], mini=4, micro=2)
    assert batch.group_R.shape == (2, 4)  # 3 + 1 rows, 1 + 1
    _, (batch,) = split([12, 4, 4, 4], mini=4, micro=4)
    assert batch.group_R.shape == (1, 6)
    _, (batch,) = split([16, 4, 4, 4], mini=4, micro=4)
    assert batch.group_R.shape == (1, 8)  # of 7


def test_padding_is_the_share_of_empty_slots():
    rollouts, batches = split([4, 4, 4, 4], mini=2, micro=1)
    found = minibatches.padding(batches)
    tokens = rollouts.length_N.sum() / rollouts.token_NT.size
    np.testing.assert_allclose(found["perf/padding_answers"], 1 - tokens)
    slots = sum(batch.prompts.token_MP.size for batch in batches)
    lengths = sum(prompt.length for prompt in small.prompts(4))
    np.testing.assert_allclose(found["perf/padding_prompts"], 1 - lengths / slots)
    assert 0 < found["perf/padding_images"] < 1
