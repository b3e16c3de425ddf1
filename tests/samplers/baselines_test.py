"""Uniform's epochs, and DAPO's filter."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import samplers
from vade_jax.samplers import baselines

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


# ------------------------------------------------------------------------------ DAPO
def feedback():
    """All wrong, mixed, all right, no answer, one answer; rewards differ in the first."""
    counted = environment.counts(range(5), [0, 1, 2, 0, 1], [2, 2, 2, 0, 1])
    return counted.replace(
        group_N=jnp.repeat(jnp.arange(5), 2),
        reward_N=jnp.array([0.0, 0.1, 0, 1, 1, 1, 0, 1, 0, 1]),
        valid_N=jnp.array([True] * 6 + [False] * 3 + [True]),
    )


def test_groups_kept():
    kept = lambda keep: baselines.DAPO(num_rollouts=2, keep=keep).keep(None, feedback()).tolist()
    assert kept("mixed") == [False, True, False, False, False]
    assert kept("varied") == [True, True, False, False, False]


@pytest.mark.parametrize("name", ["uniform", "vade"])
def test_the_rest_is_the_base(name):
    options = {"decay_rest": 0.5} if name == "vade" else {}
    plain = samplers.SAMPLERS[name](num_rollouts=3, **options)
    wrapped = baselines.DAPO(num_rollouts=3, base=name, base_options=options)
    state, key = plain.init(5), jax.random.key(0)
    chex.assert_trees_all_equal(wrapped.init(5), state)
    chex.assert_trees_all_equal(wrapped.propose(state, key, 2), plain.propose(state, key, 2))
    after = wrapped.update(state, feedback())
    chex.assert_trees_all_equal(after, plain.update(state, feedback()))
