"""DARE's draw: its density against published values, how often prompts are drawn, what it counts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from tests.samplers import environment
from vade_jax.samplers.rivals import dare


def sure(selector, p_I):
    """A state whose posterior means are nearly `p_I`."""
    p_I = jnp.asarray(p_I, jnp.float32)
    return selector.init(len(p_I)).replace(alpha_I=1e6 * p_I, beta_I=1e6 * (1 - p_I))


def test_the_density_is_that_of_the_paper():
    """At kappa = 100, against d = .5: .4 has .130, .35 has .009 and .3 has 1.6e-4."""
    weight = np.exp(dare.log_density(jnp.array([0.5, 0.4, 0.35, 0.3]), 100.0))
    np.testing.assert_allclose(weight, [1, 0.130, 0.009, 1.6e-4], rtol=0.05)
    d_I = np.linspace(0.01, 0.99, 50)
    for kappa in (0.0, 5.0, 100.0):
        of = stats.beta(1 + kappa / 2, 1 + kappa / 2).logpdf
        found = dare.log_density(jnp.asarray(d_I, jnp.float32), kappa)
        np.testing.assert_allclose(found, of(d_I) - of(0.5), atol=2e-4)


@pytest.mark.parametrize(("options", "concentration"), [({"concentration": 5.0}, 5), ({}, 100)])
def test_prompts_are_drawn_in_proportion_to_it(options, concentration):
    """100 prompts each of p = .5, .42, .6 and .8, of which the default never draws the last."""
    selector, p_A = dare.SPEC(**options), np.array([0.5, 0.42, 0.6, 0.8])
    state = sure(selector, np.repeat(p_A, 100))
    keys = jax.random.split(jax.random.key(0), 3000)
    index_KM = np.asarray(jax.vmap(lambda key: selector.propose(state, key, 2).index_M)(keys))
    share_A = np.bincount(index_KM.ravel() // 100, minlength=4) / index_KM.size
    weight_A = stats.beta(1 + concentration / 2, 1 + concentration / 2).pdf(p_A)
    # Hardly changed by drawing without replacement: 2 of 400.
    np.testing.assert_allclose(share_A, weight_A / weight_A.sum(), atol=0.02)
    assert (share_A[3] > 0.05) == (concentration == 5)


def test_the_default_counts_are_worth_two_visits_at_most():
    selector = dare.SPEC()
    state = selector.init(2)
    for successes in (0, 8, 4):
        state = selector.update(state, environment.counts([1], [successes]))
    # 4 + 8/2 + 0/4 right, and 4 + 0/2 + 8/4 wrong
    assert (state.alpha_I.tolist(), state.beta_I.tolist()) == ([0, 8], [0, 6])
