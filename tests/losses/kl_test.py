"""KL estimators by hand, and as estimators."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vade_jax.losses import kl


def test_by_hand():
    # pi = 2 pi_ref: x = -log 2, e^x - x - 1 = 1/2 + log 2 - 1
    logp, ref = jnp.log(jnp.array([[0.4]])), jnp.log(jnp.array([[0.2]]))
    log2 = np.log(2)
    np.testing.assert_allclose(kl.k1(logp, ref), [[log2]], rtol=1e-6)
    np.testing.assert_allclose(kl.absolute(ref, logp), [[log2]], rtol=1e-6)
    np.testing.assert_allclose(kl.k2(logp, ref), [[log2**2 / 2]], rtol=1e-6)
    np.testing.assert_allclose(kl.k3(logp, ref), [[log2 - 0.5]], rtol=1e-6)
    np.testing.assert_allclose(kl.k3(ref, logp), [[1 - log2]], rtol=1e-6)


def test_expectations_are_the_divergence():
    """Under pi, k1 and k3 average to KL(pi || pi_ref) exactly."""
    p_V, q_V = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.2, 0.6])
    divergence = np.sum(p_V * np.log(p_V / q_V))
    logp, ref = jnp.log(p_V)[None], jnp.log(q_V)[None]
    for estimate in (kl.k1, kl.k3):
        np.testing.assert_allclose(p_V @ estimate(logp, ref)[0], divergence, rtol=1e-6)


def test_k3_is_clamped_and_flat_beyond():
    logp, ref = jnp.array([[-30.0]]), jnp.array([[-1.0]])
    value, gradient = jax.value_and_grad(lambda x: jnp.sum(kl.k3(x, ref)))(logp)
    assert value == 10 and gradient == 0


def test_straight_through_has_the_value_of_one_and_the_gradient_of_another():
    value, gradient = jax.value_and_grad(
        lambda x: kl.straight_through(x**3, 5 * x),
    )(2.0)
    assert (value, gradient) == (8, 5)


def test_k3_with_the_gradient_of_k2():
    value, gradient = jax.value_and_grad(
        lambda x: jnp.sum(kl.estimate(x, jnp.zeros((1, 1)), "k3+"))
    )(jnp.full((1, 1), 0.5))
    np.testing.assert_allclose(value, np.exp(-0.5) + 0.5 - 1, rtol=1e-6)
    np.testing.assert_allclose(gradient, 0.5, rtol=1e-6)  # of x^2 / 2


def test_unknown_name():
    with pytest.raises(ValueError, match=r"'k4'.*k3"):
        kl.estimate(jnp.zeros((1, 1)), jnp.zeros((1, 1)), "k4")
