"""The control that knows the pass rate of every category."""

import jax
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers import categories

CATEGORY = np.repeat(["solved", "half", "rare", "hopeless"], 25)
RIGHT = np.select([CATEGORY == "solved", CATEGORY == "half", CATEGORY == "rare"], [4, 2, 1], 0)


def measured():
    """The state after a pass with four answers to each item."""
    selector = categories.STRATA(num_rollouts=4)
    state = selector.init(100, category=CATEGORY)
    order = np.random.default_rng(0).permutation(100)
    return selector, selector.update(state, environment.counts(order, RIGHT[order], 4))


def test_items_are_drawn_by_the_variance_of_their_category():
    """With p = (2 x 25 + 1/2) / 101 and so on; the other two are asked now and then."""
    selector, state = measured()
    chosen = np.concatenate(
        [selector.propose(state, jax.random.key(k), 4).index_M for k in range(2000)]
    )
    share = {name: np.mean(CATEGORY[chosen] == name) for name in set(CATEGORY)}
    # Weights 0.25, 0.2525 x 0.7475 and, twice, 0.00495 x 0.99505; hardly changed by drawing 4 of
    # 100 without replacement.
    assert share["half"] == pytest.approx(0.5576, abs=0.02)
    assert share["rare"] == pytest.approx(0.4210, abs=0.02)
    assert share["solved"] == pytest.approx(0.0110, abs=0.005)
    assert share["hopeless"] == pytest.approx(0.0110, abs=0.005)
    everything = selector.propose(state, jax.random.key(0), 100).index_M
    assert sorted(everything.tolist()) == list(range(100))


def test_given_pass_rates_are_averaged_by_category():
    state = categories.STRATA().init(4, category=["b", "a", "b", "a"], pass_rate=[1, 0.25, 0, 0.75])
    np.testing.assert_allclose(state.rate_A, [0.5, 0.5])
    state = categories.STRATA().init(3, category=[7, 7, 2], pass_rate=[1, 0.5, 0.25])
    np.testing.assert_allclose(state.rate_A, [0.75 / 2, 2 / 3])


def test_only_a_pass_teaches_it():
    selector, state = measured()
    expected = np.array([0.5, 25.5, 50.5, 100.5]) / 101
    np.testing.assert_allclose(sorted(state.rate_A), expected, rtol=1e-6)
    after = selector.update(state, environment.counts(np.arange(40), np.zeros(40), 4))
    np.testing.assert_array_equal(after.rate_A, state.rate_A)
    again = selector.update(state, environment.counts(np.arange(100), np.zeros(100), 4))
    np.testing.assert_allclose(again.rate_A, np.full(4, 0.5 / 101), rtol=1e-6)
    unanswered = selector.update(state, environment.counts(np.arange(100), np.zeros(100), 0))
    np.testing.assert_array_equal(unanswered.rate_A, state.rate_A)
