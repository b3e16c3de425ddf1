"""MaPP's selection: prompts by the expected chance of a mixed group."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from tests.samplers import environment
from vade_jax.samplers import beta
from vade_jax.samplers.rivals import mapp

# Counts of right and wrong answers of the 24 prompts of three kinds.
COUNTS = [(0.0, 0.0), (4.0, 4.0), (12.0, 0.0)]


def weight(alpha, beta):
    """V for groups of 8, by quadrature."""
    density = stats.beta(alpha + 1, beta + 1).pdf
    return integrate.quad(lambda p: (1 - p**8 - (1 - p) ** 8) * density(p), 0, 1)[0]


def state():
    alpha_A, beta_A = np.array(COUNTS, np.float32).T
    return beta.BetaState(alpha_I=jnp.repeat(alpha_A, 8), beta_I=jnp.repeat(beta_A, 8))


def test_prompts_are_drawn_in_proportion_to_the_chance_of_a_mixed_group():
    """One of 24 by weights .778, .959 and .381, each eight times."""
    weight_A = np.array([weight(*counts) for counts in COUNTS])
    assert weight_A[0] == pytest.approx(7 / 9)  # 1 - 2 / (G + 1)
    selector, begun = mapp.SPEC(), state()
    chosen = [int(selector.propose(begun, jax.random.key(k), 1).index_M[0]) for k in range(3000)]
    count_A = np.bincount(np.array(chosen) // 8, minlength=3)
    np.testing.assert_allclose(count_A / 3000, weight_A / weight_A.sum(), atol=0.03)


def test_a_visit_decays_towards_the_prior():
    """With a = alpha + 1: a <- .5 a + .5 + m; what is not visited, or has no answer, stays."""
    selector = mapp.SPEC()
    begun = beta.BetaState(alpha_I=jnp.full(3, 5.0), beta_I=jnp.full(3, 3.0))
    after = selector.update(begun, environment.counts([2, 0], [6, 0], [8, 0]))
    # a = .5 x 6 + .5 + 6 = 9.5, b = .5 x 4 + .5 + 2 = 4.5
    np.testing.assert_allclose(after.alpha_I, [5, 5, 8.5], rtol=1e-6)
    np.testing.assert_allclose(after.beta_I, [3, 3, 3.5], rtol=1e-6)
