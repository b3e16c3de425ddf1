"""Bayesian logistic regression that forgets: what the answers to some items tell of similar ones.

The logit of item i's pass rate is theta . x_i, with theta ~ N(mean, cov) and x_i the item's features. The
answers of a step, k right of n, move the posterior of theta to its mode, with the curvature there (Laplace).
Between steps old evidence fades towards the prior N(0, variance): with Lambda the inverse of cov,

    Lambda      <- decay Lambda + (1 - decay) / variance
    Lambda mean <- decay Lambda mean

so that directions in which no data come return to the prior, and never beyond it. (Only dividing cov by the
decay, as a plain filter does, makes it grow without bound there.) D features.
"""

import chex
import jax
import jax.numpy as jnp

from vade_jax import arrays, types
from vade_jax.types import Array

ITERATIONS = 20  # of Newton's method; far answers need some, as their steps are bounded
LARGEST_STEP = (
    2.0  # of any logit in an iteration, so that Newton's method cannot jump across the mode
)


@chex.dataclass(frozen=True)
class Weights(types.Pytree):
    """The posterior of theta."""

    mean_D: Array  # float32
    cov_DD: Array  # float32


def prior(num_features: int, variance: float) -> Weights:
    """Returns N(0, variance)."""
    return Weights(
        mean_D=jnp.zeros(num_features, jnp.float32),
        cov_DD=variance * jnp.eye(num_features, dtype=jnp.float32),
    )


def forget(weights: Weights, *, decay: float, variance: float) -> Weights:
    """Returns the posterior after a step in which nothing was seen."""
    inverse_DD = jnp.linalg.inv(weights.cov_DD)
    eye_DD = jnp.eye(len(weights.mean_D), dtype=jnp.float32)
    faded_DD = decay * inverse_DD + (1 - decay) / variance * eye_DD
    cov_DD = _symmetric(jnp.linalg.inv(faded_DD))
    return Weights(mean_D=cov_DD @ (decay * (inverse_DD @ weights.mean_D)), cov_DD=cov_DD)


def observe(weights: Weights, feature_MD: Array, right_M: Array, trials_M: Array) -> Weights:
    """Returns the mode of the posterior given all answers of a step at once, and the covariance there.

    One Newton step from the mean is not enough: from a logit of -4 with variance 2, eight of eight right
    answers would move it to +8.2, and the mode is at +0.8. 0 answers to an item tell nothing.
    """
    chex.assert_equal_shape([right_M, trials_M])
    inverse_DD = jnp.linalg.inv(weights.cov_DD)

    def curvature(theta_D: Array) -> Array:
        p_M = jax.nn.sigmoid(feature_MD @ theta_D)
        return inverse_DD + (feature_MD.T * (trials_M * p_M * (1 - p_M))) @ feature_MD

    def newton(_: int, theta_D: Array) -> Array:
        p_M = jax.nn.sigmoid(feature_MD @ theta_D)
        slope_D = feature_MD.T @ (right_M - trials_M * p_M)
        slope_D -= inverse_DD @ (theta_D - weights.mean_D)
        step_D = jnp.linalg.solve(curvature(theta_D), slope_D)
        largest = jnp.max(jnp.abs(feature_MD @ step_D))
        return theta_D + step_D / jnp.maximum(1, largest / LARGEST_STEP)

    mode_D = jax.lax.fori_loop(0, ITERATIONS, newton, weights.mean_D)
    return Weights(mean_D=mode_D, cov_DD=_symmetric(jnp.linalg.inv(curvature(mode_D))))


def predict(weights: Weights, feature_ID: Array) -> jax.Array:
    """Returns the expected pass rate of every item, with the uncertainty of theta averaged out.

    E[sigmoid(logit)] is about sigmoid(mean / sqrt(1 + pi variance / 8)) (MacKay 1992, doi
    10.1162/neco.1992.4.5.720).
    """

    def predicted(x_ID: Array) -> jax.Array:
        # Written out, XLA makes one loop over the items of it, seven times as fast as products of matrices.
        cov, x = weights.cov_DD, [x_ID[:, d] for d in range(x_ID.shape[1])]
        logit_I = sum(mean * x_I for mean, x_I in zip(weights.mean_D, x, strict=True))
        crossed = lambda d: 2 * sum(cov[d, e] * x[e] for e in range(d))
        variance_I = sum(x_I * (cov[d, d] * x_I + crossed(d)) for d, x_I in enumerate(x))
        return jax.nn.sigmoid(logit_I / jnp.sqrt(1 + jnp.pi * variance_I / 8))

    return arrays.in_two(predicted, feature_ID)


def _symmetric(x_DD: Array) -> Array:
    # Rounding makes an inverse a little uneven, and hundreds of steps would let that grow.
    return (x_DD + x_DD.T) / 2
