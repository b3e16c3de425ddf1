"""Progress: what moves is drawn, up or down, and what stands still is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers import pooled, progress

CATEGORIES = [0, 0, 1, 1]


def after(passes, **options):
    """Returns a sampler and its state after batches of items 0 and 2, with so many right of 8."""
    sampler = progress.METHOD(**options)
    state = sampler.init(4, category=CATEGORIES)
    for right in passes:
        state = sampler.update(state, environment.counts([0, 2], right, [8, 8]))
    return sampler, state


def test_two_averages_by_hand():
    _, state = after([(0, 4), (8, 4)], memory=0.8, slowness=4.0)  # 0.8 and 1 - 0.2 / 4
    slow = 8 / (0.95 * 8 + 8)
    fast = (8 + slow) / (0.8 * 8 + 8 + 1)
    np.testing.assert_allclose(state.slow_right_A, [8, 0.95 * 4 + 4], rtol=1e-6)
    np.testing.assert_allclose(state.slow_wrong_A, [0.95 * 8, 0.95 * 4 + 4], rtol=1e-6)
    np.testing.assert_allclose(progress.moved(state), [fast - slow, 0], atol=1e-6)


@pytest.mark.parametrize("first", [0, 8])
def test_a_category_that_moves_is_drawn_whichever_way(first):
    """Item 1, of the category that moved, against item 3, whose category is right half of the time."""
    sampler, state = after([(first, 4)] * 3 + [(4, 4)] * 2, share=1.0)
    draws = [int(sampler.propose(state, jax.random.key(k), 1).index_M[0]) for k in range(200)]
    assert set(draws) == {0, 1}


@pytest.mark.parametrize("right", [8, 0, 3])
def test_what_stands_still_has_not_moved_asked_or_not(right):
    sampler, state = after([(right, 4)] * 10)
    np.testing.assert_allclose(progress.moved(state), 0, atol=1e-6)
    for _ in range(40):
        state = sampler.update(state, environment.counts([2], [4], [8]))
    np.testing.assert_allclose(progress.moved(state), 0, atol=1e-6)


def test_the_draw_is_a_mixture_in_these_proportions():
    sampler, state = after([(0, 4)] * 3 + [(4, 4)] * 2, share=0.6)
    mixed_I = np.array(
        sampler.believe(state, sampler.propose(state, jax.random.key(0), 4))["prob_mixed"]
    )
    index_M = sampler.propose(state, jax.random.key(0), 4).index_M
    mixed_I = mixed_I[np.argsort(index_M)]
    moved_I = np.array(progress.moved(state))[CATEGORIES]
    prob_I = 0.4 * mixed_I / mixed_I.sum() + 0.6 * moved_I * mixed_I / (moved_I * mixed_I).sum()
    draws = [int(sampler.propose(state, jax.random.key(k), 1).index_M[0]) for k in range(2000)]
    np.testing.assert_allclose(np.bincount(draws, minlength=4) / 2000, prob_I, atol=0.035)


def test_before_anything_moves_it_draws_as_pooled_does():
    sampler, state = after([], share=1.0)
    other = pooled.METHOD()
    for k in range(5):
        found = sampler.propose(state, jax.random.key(k), 2)
        want = other.propose(other.init(4, category=CATEGORIES), jax.random.key(k), 2)
        assert found.index_M.tolist() == want.index_M.tolist()


def test_an_item_that_is_not_a_number_takes_no_other_with_it():
    mixed_I = jnp.array([0.5, jnp.nan, 0.5])
    prob_I = progress.probabilities(mixed_I, jnp.array([0.1, 0.1, 0.0]), 0.5)
    np.testing.assert_allclose(prob_I, [0.75, np.nan, 0.25], rtol=1e-6)
