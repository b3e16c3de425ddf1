"""The control that knows the pass rate of every category."""

import jax
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers import strata

CATEGORY = np.repeat(["solved", "half", "rare", "hopeless"], 25)
RIGHT = np.select([CATEGORY == "solved", CATEGORY == "half", CATEGORY == "rare"], [4, 2, 1], 0)


def measured():
    """The state after a pass with four answers to each item."""
    sampler = strata.METHOD(num_rollouts=4)
    state = sampler.init(100, category=CATEGORY)
    order = np.random.default_rng(0).permutation(100)
    return sampler, sampler.update(state, environment.counts(order, RIGHT[order], 4))


def test_items_are_drawn_by_the_variance_of_their_category():
    """Weights 1/4 and 3/16 in two categories of one size; the other two only fill a batch."""
    sampler, state = measured()
    chosen = np.concatenate(
        [sampler.propose(state, jax.random.key(k), 4).index_M for k in range(2000)]
    )
    share = {name: np.mean(CATEGORY[chosen] == name) for name in ("half", "rare")}
    # Hardly changed by drawing without replacement: 4 of 50.
    assert share["half"] == pytest.approx(4 / 7, abs=0.02)
    assert share["rare"] == pytest.approx(3 / 7, abs=0.02)
    everything = sampler.propose(state, jax.random.key(0), 100).index_M
    assert sorted(everything.tolist()) == list(range(100))


def test_given_pass_rates_are_averaged_by_category():
    state = strata.METHOD().init(4, category=["b", "a", "b", "a"], pass_rate=[1, 0.25, 0, 0.75])
    np.testing.assert_allclose(state.rate_A, [0.5, 0.5])
    state = strata.METHOD().init(3, category=[7, 7, 2], pass_rate=[1, 0.5, 0.25])
    np.testing.assert_allclose(state.rate_A, [0.25, 0.75])


def test_only_a_pass_teaches_it():
    sampler, state = measured()
    np.testing.assert_allclose(sorted(state.rate_A), [0, 0.25, 0.5, 1])
    after = sampler.update(state, environment.counts(np.arange(40), np.zeros(40), 4))
    np.testing.assert_array_equal(after.rate_A, state.rate_A)
    again = sampler.update(state, environment.counts(np.arange(100), np.zeros(100), 4))
    np.testing.assert_array_equal(again.rate_A, np.zeros(4))
    unanswered = sampler.update(state, environment.counts(np.arange(100), np.zeros(100), 0))
    np.testing.assert_array_equal(unanswered.rate_A, state.rate_A)
