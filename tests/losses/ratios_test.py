"""Token and sequence log-ratios."""

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.losses import ratios

OLD = jnp.zeros((2, 3))
NEW = jnp.array([[0.1, 0.3, 9.0], [-0.2, 30.0, -30.0]])
MASK = jnp.array([[1.0, 1, 0], [1, 0, 0]])


def test_token_is_new_minus_old_clamped():
    expected_NT = [[0.1, 0.3, 9.0], [-0.2, 20.0, -20.0]]
    np.testing.assert_allclose(ratios.token(NEW, OLD), expected_NT, rtol=1e-6)


def test_sequence_is_the_masked_mean_on_every_token():
    log_NT = ratios.sequence(NEW, OLD, MASK)
    expected_NT = [[0.2] * 3, [-0.2] * 3]  # (0.1 + 0.3) / 2 and -0.2 / 1
    np.testing.assert_allclose(log_NT, expected_NT, rtol=1e-5, atol=1e-6)
    log_NT = ratios.sequence(NEW + 50, OLD, MASK)
    np.testing.assert_array_equal(log_NT, np.full((2, 3), 10.0))  # capped


def test_gradient_of_a_token_is_its_own():
    """The gradient of sum_t w_t log s_t is w_t: the mean carries none."""
    weight_NT = jnp.arange(1.0, 7.0).reshape(2, 3)
    gradient = jax.grad(lambda x: jnp.sum(weight_NT * ratios.sequence(x, OLD, MASK)))
    np.testing.assert_array_equal(gradient(NEW), weight_NT)
