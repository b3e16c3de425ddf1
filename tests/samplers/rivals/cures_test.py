"""CurES: how often prompts are drawn, and how answers are split."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.samplers import environment
from vade_jax.samplers.rivals import cures


def sure(selector, rate_I):
    """A state whose posterior means are nearly `rate_I`."""
    rate_I = jnp.asarray(rate_I, jnp.float32)
    return selector.init(len(rate_I)).replace(alpha_I=1e6 * rate_I, beta_I=1e6 * (1 - rate_I))


def test_prompts_are_drawn_by_the_standard_deviation_of_an_answer():
    """exp(sigma / tau) at sigma = .5, .3 and .0: with tau = .1, 148.4, 20.1 and 1."""
    selector, per_kind = cures.SPEC(temperature=0.1), 100
    state = sure(selector, np.repeat([0.5, 0.9, 1.0], per_kind))
    keys = jax.random.split(jax.random.key(0), 3000)
    index_KM = np.asarray(jax.vmap(lambda key: selector.propose(state, key, 2).index_M)(keys))
    share = np.bincount(index_KM.ravel() // per_kind, minlength=3) / index_KM.size
    weight = np.exp(10 * np.array([0.5, 0.3, 0.001]))
    # Hardly changed by drawing without replacement: 2 of 100.
    np.testing.assert_allclose(share, weight / weight.sum(), atol=0.015)


def test_the_published_temperature_is_all_but_uniform():
    selector = cures.SPEC(temperature=100.0)
    state = sure(selector, np.repeat([0.5, 1.0], 50))
    keys = jax.random.split(jax.random.key(0), 3000)
    index_KM = np.asarray(jax.vmap(lambda key: selector.propose(state, key, 2).index_M)(keys))
    assert np.mean(index_KM < 50) == pytest.approx(0.5, abs=0.03)


def test_update_by_hand():
    """Nothing is forgotten; the mean is (alpha + 1) / (alpha + beta + 2)."""
    selector = cures.SPEC()
    state = selector.init(3).replace(alpha_I=jnp.ones(3))
    after = selector.update(state, environment.counts([2, 0], [6, 0], [8, 0]))
    np.testing.assert_allclose(after.alpha_I, [1, 1, 7])
    np.testing.assert_allclose(after.beta_I, [0, 0, 2])
    p_I = np.array([2 / 3, 2 / 3, 8 / 11])
    proposal = selector.propose(after, jax.random.key(0), 3)
    np.testing.assert_allclose(proposal.p_M, p_I[proposal.index_M], rtol=1e-6)


@pytest.mark.parametrize(
    ("sigma_M", "expected_M"),
    [
        ([0.5, 0.3, 0.2, 1e-9], [15, 9, 6, 2]),  # the last has its two, the others share 30
        ([0.25, 0.25, 0.25, 0.25], [8, 8, 8, 8]),
        ([0.5, 0.01, 0.01, 0.01], [16, 6, 5, 5]),  # a ceiling; the others share what is left
    ],
)
def test_answers_in_proportion_within_bounds(sigma_M, expected_M):
    options = cures.CuresOptions(rollouts="sigma")
    found_M = cures.split(options, jnp.asarray(sigma_M, jnp.float32))
    assert sorted(found_M.tolist(), reverse=True) == expected_M
    assert found_M.dtype == jnp.int32


def test_bounds_of_a_split_are_checked_where_there_is_one():
    assert cures.CuresOptions(num_rollouts=32).max_rollouts == 16
    with pytest.raises(ValueError, match="max_rollouts=16: must be in"):
        cures.CuresOptions(num_rollouts=32, rollouts="sigma")


def test_the_split_is_that_of_the_chosen_prompts():
    selector = cures.SPEC(rollouts="sigma")
    assert selector.needs.uneven
    state = sure(selector, [0.5, 0.99, 0.5, 0.99])
    proposal = selector.propose(state, jax.random.key(0), 4)
    num_I = np.zeros(4, int)
    num_I[proposal.index_M] = proposal.num_rollouts_M
    # sigma .5 and .0995: 13.34 and 2.66 of 16 a pair
    assert num_I.tolist() == [13, 3, 13, 3]
