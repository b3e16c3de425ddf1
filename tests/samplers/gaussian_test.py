"""The Gaussian posterior of a logit against NumPy loops and quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, special, stats

from vade_jax.samplers import gaussian

# mean, variance, right, answers
CASES = [
    (0, 4.152, 0, 8),
    (1.5, 0.3, 5, 8),
    (-4, 2, 8, 8),
    (0.2, 1, 3, 4),
    (1, 2, 0, 0),
]


def columns():
    return tuple(jnp.array(column, jnp.float32) for column in zip(*CASES, strict=True))


def test_condition_is_two_newton_steps():
    mean_M, var_M = gaussian.condition(*columns())
    for (m, v, k, n), mean, var in zip(CASES, mean_M, var_M, strict=True):
        x = m
        for _ in range(2):
            p = 1 / (1 + np.exp(-x))
            x += np.clip((k - n * p - (x - m) / v) / (n * p * (1 - p) + 1 / v), -2, 2)
        p = 1 / (1 + np.exp(-x))
        np.testing.assert_allclose(mean, x, rtol=1e-5)
        np.testing.assert_allclose(var, 1 / (n * p * (1 - p) + 1 / v), rtol=1e-5)


def expectation(f, m, v):
    density = stats.norm(m, np.sqrt(v)).pdf
    return integrate.quad(lambda x: f(x) * density(x), m - 30, m + 30, limit=500)[0]


@pytest.mark.parametrize(("m", "v", "k", "n"), CASES)
def test_integrals_over_the_logit(m, v, k, n):
    mean_M, var_M, k_M, n_M = (jnp.full(1, float(x)) for x in (m, v, k, n))
    right, wrong = special.expit, lambda x: special.expit(-x)
    likelihood = expectation(lambda x: right(x) ** k * wrong(x) ** (n - k), m, v)
    evidence_M = gaussian.log_evidence(mean_M, var_M, k_M, n_M)
    np.testing.assert_allclose(evidence_M, np.log(likelihood), rtol=1e-3, atol=1e-5)
    mixed = expectation(lambda x: 1 - right(x) ** 8 - wrong(x) ** 8, m, v)
    mixed_M = gaussian.prob_mixed(mean_M, var_M, 8)
    np.testing.assert_allclose(mixed_M, mixed, rtol=1e-3)
    p_M = gaussian.posterior_mean(mean_M, var_M)
    np.testing.assert_allclose(p_M, expectation(right, m, v), rtol=1e-4)


def test_draws_are_tempered():
    mean_I, var_I = jnp.full(50_000, -1.0), jnp.full(50_000, 4.0)
    p_I = gaussian.draw(jax.random.key(0), mean_I, var_I, 0.5)
    logit_I = np.asarray(jnp.log(p_I) - jnp.log1p(-p_I))
    test = stats.kstest(logit_I, stats.norm(-1, 1).cdf)
    assert test.pvalue > 1e-3
    still_I = gaussian.draw(jax.random.key(0), mean_I, var_I, 0.0)
    np.testing.assert_allclose(still_I, special.expit(-1), rtol=1e-6)
