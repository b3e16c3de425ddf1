"""CurES: how often prompts are drawn, and how answers are split."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

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


def test_the_split_is_that_of_the_chosen_prompts():
    selector = cures.SPEC(rollouts="sigma")
    assert selector.needs.uneven
    state = sure(selector, [0.5, 0.99, 0.5, 0.99])
    proposal = selector.propose(state, jax.random.key(0), 4)
    num_I = np.zeros(4, int)
    num_I[proposal.index_M] = proposal.num_rollouts_M
    # sigma .5 and .0995: 13.34 and 2.66 of 16 a pair
    assert num_I.tolist() == [13, 3, 13, 3]
