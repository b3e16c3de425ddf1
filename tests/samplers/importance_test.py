"""Importance: drawn as often as their probabilities say, and weighed so that the objective stays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax import samplers
from vade_jax.samplers import importance

GAIN_I = np.array([0.9, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.02, 0.0], np.float32)


def test_probabilities_by_hand():
    found_I = importance.probabilities(jnp.array([3.0, 1, 0, 0]), 1, 0.2)
    np.testing.assert_allclose(found_I, [0.65, 0.25, 0.05, 0.05], rtol=1e-6)


def test_an_item_of_unknown_size_has_no_part_in_the_floor():
    found_I = importance.probabilities(jnp.array([3.0, 1, 0, jnp.nan]), 1, 0.3)
    np.testing.assert_allclose(found_I, [0.625, 0.275, 0.1, np.nan], rtol=1e-6)


def test_what_would_be_drawn_more_than_once_is_certain():
    """Of 3 places the first takes one; the other two are shared out as 1 : 1 : 1 : 1."""
    found_I = importance.probabilities(jnp.array([90.0, 1, 1, 1, 1]), 3, 1e-6)
    np.testing.assert_allclose(found_I, [1, 0.5, 0.5, 0.5, 0.5], rtol=1e-5)
    # Its place given away, the second one is certain, too: 3 places, 90 : 9 : 1 : 1 : 1.
    found_I = importance.probabilities(jnp.array([90.0, 9, 1, 1, 1]), 3, 1e-6)
    np.testing.assert_allclose(found_I, [1, 1, 1 / 3, 1 / 3, 1 / 3], rtol=1e-5)
    np.testing.assert_allclose(importance.probabilities(jnp.asarray(GAIN_I), 10, 0.1), 1, rtol=1e-6)


@pytest.fixture
def given_gain(monkeypatch):
    monkeypatch.setattr(importance.beta, "prob_mixed", lambda *_: jnp.asarray(GAIN_I))


def proposals(sampler, num_prompts, count):
    state, keys = sampler.init(len(GAIN_I)), jax.random.split(jax.random.key(1), count)
    return jax.vmap(lambda key: sampler.propose(state, key, num_prompts))(keys)


def test_items_are_drawn_as_often_as_their_probabilities_say(given_gain):
    found = proposals(importance.METHOD(), 4, 20_000)
    index_SM = np.asarray(found.index_M)
    assert all(len(set(index_M)) == 4 for index_M in index_SM[:100].tolist())
    share_I = np.bincount(index_SM.ravel(), minlength=10) / len(index_SM)
    prob_I = importance.probabilities(jnp.sqrt(jnp.asarray(GAIN_I)), 4, 0.1)
    # Sampling error .0035; what is left is Pareto's own.
    np.testing.assert_allclose(share_I, prob_I, atol=0.02)
    expected_SM = (4 / 10 / np.asarray(prob_I))[index_SM]
    np.testing.assert_allclose(found.weight_M, expected_SM, rtol=1e-5)


def test_the_weighted_mean_is_that_of_all_items(given_gain):
    """Of any value, such as a gradient: unweighted it is far off."""
    value_I = np.array([5, -3, 2, 8, 0, 1, -7, 4, 9, 30], np.float32)
    found = proposals(importance.METHOD(), 4, 20_000)
    weighted = np.mean(np.asarray(found.weight_M) * value_I[found.index_M])
    np.testing.assert_allclose(weighted, value_I.mean(), rtol=0.05)
    assert abs(np.mean(value_I[found.index_M]) - value_I.mean()) > 2


def test_the_second_moment_is_below_that_of_uniform_batches():
    """Of a group's gradient the mean square is in proportion to its chance to be mixed."""
    rate_I = np.random.default_rng(0).beta(0.4, 0.6, 20_000)
    mixed_I = 1 - rate_I**8 - (1 - rate_I) ** 8
    uniform = mixed_I.mean()

    def second_moment(size_I):
        prob_I = np.asarray(importance.probabilities(jnp.asarray(size_I, jnp.float32), 200, 0.1))
        return np.mean(mixed_I / prob_I) * 200 / len(rate_I)

    assert second_moment(np.sqrt(mixed_I)) / uniform == pytest.approx(0.84, abs=0.01)
    assert second_moment(mixed_I) > second_moment(np.sqrt(mixed_I))


def test_without_weights_it_is_a_draw_and_nothing_else(given_gain):
    with_, without = (importance.METHOD(weights=word) for word in ("inverse", "none"))
    state = with_.init(10)
    one, other = (s.propose(state, jax.random.key(0), 4) for s in (with_, without))
    np.testing.assert_array_equal(one.index_M, other.index_M)
    assert other.weight_M is None and not without.weighs


def test_it_believes_and_counts_as_pooled():
    made = [samplers.SAMPLERS[name]() for name in ("importance", "pooled")]
    found = []
    for sampler in made:
        state = sampler.init(4, category=[0, 0, 1, 1])
        found.append(sampler.update(state, environment.counts([0, 2], [0, 4], [8, 8])))
    jax.tree.map(np.testing.assert_array_equal, *found)
