"""A Gaussian posterior of every item's logit pass rate, log(p / (1 - p)) ~ N(mean, var).

A Beta posterior can only forget. This one can also drift, and the variance says by how much. The counts
are binomial, so conditioning on them has no closed form: `condition` takes two steps towards the mode of the
posterior and the curvature there (Laplace). Where an exact value is needed, 32-point Gauss-Hermite quadrature
computes it.
"""

from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import types
from vade_jax.samplers.base import State
from vade_jax.types import Array

NUM_NEWTON = 2
MAX_MOVE = 2.0  # largest Newton step on the logit


def quadrature(num_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns node_Z and weight_Z with E[f(x)] = sum_z weight_z f(node_z) for x ~ N(0, 1)."""
    node_Z, weight_Z = np.polynomial.hermite_e.hermegauss(num_points)
    return node_Z.astype(np.float32), (weight_Z / weight_Z.sum()).astype(np.float32)


NUM_POINTS = 32
NODE_Z, WEIGHT_Z = quadrature(NUM_POINTS)


def draw(key: jax.Array, mean_I: Array, var_I: Array, temper: float = 1.0) -> jax.Array:
    """Returns one draw of every pass rate, sigma(mean + temper sqrt(var) e), e ~ N(0, 1)."""
    chex.assert_equal_shape([mean_I, var_I])
    noise_I = jax.random.normal(key, mean_I.shape)
    return jax.nn.sigmoid(mean_I + temper * jnp.sqrt(var_I) * noise_I)


def condition(
    mean_M: Array, var_M: Array, successes_M: Array, trials_M: Array
) -> tuple[Array, Array]:
    """Returns the mean and variance of the logit after k of n answers were right (Laplace).

    Two bounded Newton steps from x = mean towards the mode of the posterior: with p = sigma(x),
    x += clip((k - n p - (x - mean) / var) / (n p (1-p) + 1 / var), -2, 2); then
    var = 1 / (n p (1-p) + 1 / var) at that x. Answers far from what was expected move x only part of the
    way: from N(-4, 2), eight of eight right answers move it to 0, and the mode is at +0.8.
    """

    def precision(p_M: Array) -> Array:
        return trials_M * p_M * (1 - p_M) + 1 / var_M

    # Far from 0 the sigmoid is flat and a full Newton step would overshoot, so steps are clipped.
    x_M = mean_M
    for _ in range(NUM_NEWTON):
        p_M = jax.nn.sigmoid(x_M)
        slope_M = successes_M - trials_M * p_M - (x_M - mean_M) / var_M
        x_M = x_M + jnp.clip(slope_M / precision(p_M), -MAX_MOVE, MAX_MOVE)
    return x_M, 1 / precision(jax.nn.sigmoid(x_M))


def log_evidence(mean_M: Array, var_M: Array, successes_M: Array, trials_M: Array) -> jax.Array:
    """Returns log P(one given sequence of k right of n answers), with the logit integrated out."""
    x_MZ = mean_M[:, None] + jnp.sqrt(var_M)[:, None] * NODE_Z
    right_MZ = successes_M[:, None] * jax.nn.log_sigmoid(x_MZ)
    wrong_MZ = (trials_M - successes_M)[:, None] * jax.nn.log_sigmoid(-x_MZ)
    return jax.nn.logsumexp(right_MZ + wrong_MZ, axis=1, b=WEIGHT_Z)


def expectation(
    f: Callable[[Array], Array], mean_I: Array, var_I: Array, num_points: int = NUM_POINTS
) -> Array:
    """Returns E[f(p)] of every item; `f` must work elementwise on arrays of any shape."""
    node_Z, weight_Z = quadrature(num_points)
    x_IZ = mean_I[:, None] + jnp.sqrt(var_I)[:, None] * node_Z
    return f(jax.nn.sigmoid(x_IZ)) @ weight_Z


def posterior_mean(mean_M: Array, var_M: Array) -> Array:
    return expectation(lambda p_MZ: p_MZ, mean_M, var_M)


def prob_mixed(mean_M: Array, var_M: Array, num_rollouts: int | Array) -> jax.Array:
    """Returns the probability that G answers are neither all right nor all wrong."""
    num_M = jnp.broadcast_to(jnp.asarray(num_rollouts, jnp.float32), mean_M.shape)
    all_right_M = jnp.exp(log_evidence(mean_M, var_M, num_M, num_M))
    all_wrong_M = jnp.exp(log_evidence(mean_M, var_M, jnp.zeros_like(num_M), num_M))
    return 1 - all_right_M - all_wrong_M


def believe(state: State, proposal: types.Proposal) -> dict[str, Array]:
    """Implements `Sampler.believe` for states with `mean_I` and `var_I`."""
    mean_M, var_M = state.mean_I[proposal.index_M], state.var_I[proposal.index_M]
    return {
        "posterior_mean": posterior_mean(mean_M, var_M),
        "prob_mixed": prob_mixed(mean_M, var_M, proposal.num_rollouts_M),
    }
