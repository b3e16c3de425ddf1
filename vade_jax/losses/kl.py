"""Estimators of KL(pi || pi_ref) a token (Schulman 2020, http://joschu.net/blog/kl-approx.html)."""

import chex
import jax
import jax.numpy as jnp

from vade_jax.types import Array


def k1(logp_NT: Array, ref_logp_NT: Array) -> jax.Array:
    """Returns log pi - log pi_ref."""
    chex.assert_equal_shape([logp_NT, ref_logp_NT])
    return logp_NT - ref_logp_NT


def absolute(logp_NT: Array, ref_logp_NT: Array) -> jax.Array:
    """Returns |log pi - log pi_ref|."""
    return jnp.abs(k1(logp_NT, ref_logp_NT))


def k2(logp_NT: Array, ref_logp_NT: Array) -> jax.Array:
    """Returns (log pi - log pi_ref)^2 / 2."""
    return k1(logp_NT, ref_logp_NT) ** 2 / 2


def k3(logp_NT: Array, ref_logp_NT: Array) -> jax.Array:
    """Returns e^x - x - 1, x = log pi_ref - log pi: Eq. 4 of GRPO (arXiv 2402.03300).

    Clamped as in verl: x to +-20, the result to +-10. Beyond, the gradient is 0.
    """
    x_NT = jnp.clip(-k1(logp_NT, ref_logp_NT), -20, 20)
    return jnp.clip(jnp.exp(x_NT) - x_NT - 1, -10, 10)


def straight_through(value_NT: Array, gradient_NT: Array) -> jax.Array:
    """Returns the value of one estimator with the gradient of another (verl's `k1+`, `k3+`).

    k2 has the unbiased gradient on-policy, k1 and k3 have unbiased values.
    """
    return gradient_NT + jax.lax.stop_gradient(value_NT - gradient_NT)


ESTIMATORS = {
    "k1": k1,
    "abs": absolute,
    "k2": k2,
    "k3": k3,
    "k1+": lambda logp, ref: straight_through(k1(logp, ref), k2(logp, ref)),
    "k3+": lambda logp, ref: straight_through(k3(logp, ref), k2(logp, ref)),
}


def estimate(logp_NT: Array, ref_logp_NT: Array, how: str) -> jax.Array:
    """Returns the estimator named `how`, one of ESTIMATORS (a config's word for it)."""
    if how not in ESTIMATORS:
        raise ValueError(f"KL estimator {how!r}: choose one of {list(ESTIMATORS)}")
    return ESTIMATORS[how](logp_NT, ref_logp_NT)
