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


def test_sequence_is_capped_at_ten():
    log_NT = ratios.sequence(NEW + 50, OLD, MASK)
    np.testing.assert_array_equal(log_NT, np.full((2, 3), 10.0))


def test_gradient_of_a_token_is_its_own():
    """The gradient of sum_t w_t log s_t is w_t: the mean carries none."""
    weight_NT = jnp.arange(1.0, 7.0).reshape(2, 3)
    gradient = jax.grad(lambda x: jnp.sum(weight_NT * ratios.sequence(x, OLD, MASK)))
    np.testing.assert_array_equal(gradient(NEW), weight_NT)


def test_token_form_has_the_gradient_of_the_sequence_form():
    """Per-sequence means of s_t and plain s have one gradient (GSPO, section 4.3)."""

    def token_form(logp_NT):
        s_NT = jnp.exp(ratios.sequence(logp_NT, OLD, MASK))
        return jnp.sum(jnp.sum(s_NT * MASK, 1) / jnp.sum(MASK, 1))

    def plain(logp_NT):
        log_N = jnp.sum((logp_NT - OLD) * MASK, 1) / jnp.sum(MASK, 1)
        return jnp.sum(jnp.exp(log_N))

    np.testing.assert_allclose(
        jax.grad(token_form)(NEW), jax.grad(plain)(NEW), rtol=1e-5
    )
