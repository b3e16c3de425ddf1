"""KL estimators by hand; golden_test.py has their gradients and verl's mixtures of two."""

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


def test_k3_is_clamped_and_flat_beyond():
    logp, ref = jnp.array([[-30.0]]), jnp.array([[-1.0]])
    value, gradient = jax.value_and_grad(lambda x: jnp.sum(kl.k3(x, ref)))(logp)
    assert value == 10 and gradient == 0


@pytest.mark.parametrize(("difference", "value"), [(9.0, 8 + np.exp(-9)), (15.0, 10), (30.0, 10)])
def test_k3_of_a_token_that_the_policy_prefers_by_far(difference, value):
    """By hand e^x - x - 1 of x = -difference: 10 and flat from 11 on, and not cut at any x before."""
    found = kl.k3(jnp.array([[-1.0]]), jnp.array([[-1.0 - difference]]))
    np.testing.assert_allclose(found, [[value]], rtol=1e-6)
