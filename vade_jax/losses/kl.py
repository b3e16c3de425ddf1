"""Estimators of KL(pi || pi_ref) from one drawn token (Schulman 2020, http://joschu.net/blog/kl-approx.html).

All take `logp_NT` and `ref_logp_NT`, the log-probs of the drawn tokens under the policy and the reference,
and return a value for each token. Averaged over tokens drawn from pi, k1 and k3 equal the KL, but only k2 has
its gradient. "k1+" and "k3+" have the value of k1 and k3, and the gradient of k2. k3 is never negative and
varies least.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp

from vade_jax.types import Array

Estimator = Callable[[Array, Array], Array]


def k1(logp_NT: Array, ref_logp_NT: Array) -> Array:
    """Returns log pi - log pi_ref."""
    chex.assert_equal_shape([logp_NT, ref_logp_NT])
    return logp_NT - ref_logp_NT


def absolute(logp_NT: Array, ref_logp_NT: Array) -> jax.Array:
    """Returns |log pi - log pi_ref|."""
    return jnp.abs(k1(logp_NT, ref_logp_NT))


def k2(logp_NT: Array, ref_logp_NT: Array) -> Array:
    """Returns (log pi - log pi_ref)^2 / 2."""
    return k1(logp_NT, ref_logp_NT) ** 2 / 2


def k3(logp_NT: Array, ref_logp_NT: Array) -> jax.Array:
    """Returns e^x - x - 1, x = log pi_ref - log pi: Eq. 4 of GRPO (arXiv 2402.03300).

    As in verl, x is clamped to +-20, and the result is at most 10; where one is clamped, the gradient is 0.
    """
    x_NT = jnp.clip(-k1(logp_NT, ref_logp_NT), -20, 20)
    return jnp.clip(jnp.exp(x_NT) - x_NT - 1, -10, 10)


def _with_gradient_of_k2(estimator: Estimator) -> Estimator:
    """Returns an estimator with the value of another and the gradient of k2, as verl's `k1+` and `k3+`."""

    def both(logp_NT: Array, ref_logp_NT: Array) -> Array:
        gradient_NT = k2(logp_NT, ref_logp_NT)
        return gradient_NT + jax.lax.stop_gradient(estimator(logp_NT, ref_logp_NT) - gradient_NT)

    return both


ESTIMATORS: dict[str, Estimator] = {
    **{"k1": k1, "abs": absolute, "k2": k2, "k3": k3},
    **{"k1+": _with_gradient_of_k2(k1), "k3+": _with_gradient_of_k2(k3)},
}
