"""Shuffling without replacement."""

import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import samplers

SAMPLER = samplers.SAMPLERS["uniform"](num_rollouts=2)


def batches(num_items, num_prompts, num_steps, seed=0):
    state, rate_I = SAMPLER.init(num_items), np.ones(num_items)
    steps, _ = environment.play(SAMPLER, state, rate_I, num_prompts, num_steps, seed)
    return [np.asarray(proposal.index_M) for proposal, _ in steps]


@pytest.mark.parametrize(
    ("num_items", "num_prompts"), [(6, 6), (6, 3), (7, 3), (7, 5), (10, 4), (5, 1)]
)
def test_every_item_once_an_epoch_and_no_item_twice_a_batch(num_items, num_prompts):
    count_I = np.zeros(num_items, int)
    for index_M in batches(num_items, num_prompts, 3 * num_items):
        assert len(set(index_M.tolist())) == num_prompts
        due = set(np.flatnonzero(count_I == count_I.min()).tolist())
        # the due ones come first, and nothing else while they suffice
        assert len(due & set(index_M.tolist())) == min(len(due), num_prompts)
        np.add.at(count_I, index_M, 1)
        assert np.ptp(count_I) <= 1
    assert count_I.tolist() == [3 * num_prompts] * num_items


def test_order_is_uniform():
    """All 24 orders of 4 items, 2 a batch, over 480 seeds: chi-square below its 99.9 %."""
    orders = [tuple(np.concatenate(batches(4, 2, 2, seed))) for seed in range(480)]
    _, count = np.unique(orders, axis=0, return_counts=True)
    assert len(count) == 24
    assert np.sum((count - 20) ** 2 / 20) < 49.7
