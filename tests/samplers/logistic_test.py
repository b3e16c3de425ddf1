"""Logistic regression that forgets, by hand and by scipy's optimiser."""

import jax.numpy as jnp
import numpy as np
from scipy import optimize, special

from vade_jax.samplers import informed


def weights(mean, cov):
    return informed.Weights(mean_D=jnp.float32(mean), cov_DD=jnp.float32(cov))


def test_a_steps_answers_at_once_are_the_mode_of_all_of_them():
    """Against an optimiser in float64; an item without answers tells nothing."""
    rng = np.random.default_rng(0)
    x_MD, trials_M = rng.normal(size=(20, 4)), np.r_[np.full(19, 8.0), 0]
    right_M = rng.binomial(trials_M.astype(int), special.expit(x_MD @ [1.0, -2, 0, 3]))
    half = rng.normal(size=(4, 4))
    mean, cov = rng.normal(size=4), half @ half.T + np.eye(4)

    def loss(theta):
        logit = x_MD @ theta
        likely = right_M * special.log_expit(logit) + (trials_M - right_M) * special.log_expit(
            -logit
        )
        return (theta - mean) @ np.linalg.solve(cov, theta - mean) / 2 - likely.sum()

    mode = optimize.minimize(loss, mean, tol=1e-12).x
    p_M = special.expit(x_MD @ mode)
    curvature = np.linalg.inv(cov) + (x_MD.T * (trials_M * p_M * (1 - p_M))) @ x_MD
    found = informed.observe(
        weights(mean, cov), jnp.float32(x_MD), jnp.float32(right_M), jnp.float32(trials_M)
    )
    np.testing.assert_allclose(found.mean_D, mode, atol=2e-3)
    np.testing.assert_allclose(found.cov_DD, np.linalg.inv(curvature), rtol=1e-2, atol=1e-4)
    alone = informed.observe(
        weights(mean, cov), jnp.float32(x_MD[:19]), *map(jnp.float32, (right_M[:19], trials_M[:19]))
    )
    np.testing.assert_allclose(found.mean_D, alone.mean_D, atol=1e-5)


def test_old_evidence_fades_to_the_prior_and_not_beyond():
    """One dimension: precision 10 -> .9 x 10 + .1 / 4; mean x precision -> .9 of it."""
    found = informed.forget(weights([2], [[0.1]]), decay=0.9, variance=4.0)
    precision = 0.9 * 10 + 0.1 / 4
    np.testing.assert_allclose(found.cov_DD, [[1 / precision]], rtol=1e-5)
    np.testing.assert_allclose(found.mean_D, [2 * 10 * 0.9 / precision], rtol=1e-5)
    for _ in range(300):
        found = informed.forget(found, decay=0.9, variance=4.0)
    np.testing.assert_allclose(found.cov_DD, [[4]], rtol=1e-3)
    np.testing.assert_allclose(found.mean_D, [0], atol=1e-3)


def test_the_prediction_is_that_of_the_formula():
    rng = np.random.default_rng(0)
    x_ID, root_DD = rng.standard_normal((50, 3)), rng.standard_normal((3, 3))
    mean_D, cov_DD = rng.standard_normal(3), root_DD @ root_DD.T
    found = informed.predict(weights(mean_D, cov_DD), jnp.asarray(x_ID, jnp.float32))
    variance_I = np.einsum("id,de,ie->i", x_ID, cov_DD, x_ID)
    expected = special.expit(x_ID @ mean_D / np.sqrt(1 + np.pi * variance_I / 8))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
