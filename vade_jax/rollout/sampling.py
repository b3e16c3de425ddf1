"""Drawing tokens from logits, and their exact log-probs under the distribution drawn from."""

import jax
import jax.numpy as jnp

from vade_jax.types import Array


def draw(
    key_N: Array, logits_NV: Array, *, temperature: float, top_p: float, top_k: int
) -> tuple[jax.Array, jax.Array]:
    """Returns `token_N` and `logp_N`, each row from its own key.

    `logp_N` is under the tempered, truncated and renormalised distribution, so it is the behaviour
    policy's. At temperature 0 the most likely token is taken and its log-prob is at temperature 1.
    """
    if temperature == 0:
        token_N = jnp.argmax(logits_NV, -1)
        return token_N, _take(jax.nn.log_softmax(logits_NV), token_N)
    logp_NV = jax.nn.log_softmax(truncate(logits_NV / temperature, top_p, top_k))
    uniform_N = jax.vmap(lambda key: jax.random.uniform(key))(key_N)
    token_N = inverse_cdf(uniform_N, jnp.exp(logp_NV))
    return token_N, _take(logp_NV, token_N)


def inverse_cdf(uniform_N: Array, prob_NV: Array) -> jax.Array:
    """Returns the token whose slice of the cumulative distribution holds the uniform draw.

    One random number a row instead of V Gumbels; a row of probability 0 is never taken.
    """
    cdf_NV = jnp.cumsum(prob_NV, -1)
    threshold_N = uniform_N * cdf_NV[:, -1]
    return jnp.argmax((cdf_NV > threshold_N[:, None]) & (prob_NV > 0), -1)


def truncate(logits_NV: Array, top_p: float, top_k: int) -> jax.Array:
    """Returns the logits with all but the top k, then all but the nucleus of mass p, at -inf."""
    if top_k:
        kth_N1 = jax.lax.top_k(logits_NV, min(top_k, logits_NV.shape[-1]))[0][:, -1:]
        logits_NV = jnp.where(logits_NV >= kth_N1, logits_NV, -jnp.inf)
    if top_p < 1:
        prob_NV = jax.nn.softmax(logits_NV)
        keep_NV = prob_NV >= nucleus_threshold(prob_NV, top_p)[:, None]
        logits_NV = jnp.where(keep_NV, logits_NV, -jnp.inf)
    return logits_NV


def nucleus_threshold(prob_NV: Array, top_p: float) -> jax.Array:
    """Returns the largest probability whose upper set holds mass >= top_p.

    Bisection on the float's bits, 31 sums over the row, instead of a sort of the vocabulary:
    non-negative floats are ordered as their bit patterns are.
    """

    def halve(_, bounds):
        low_N, high_N = bounds  # mass(low) >= top_p > mass(high)
        middle_N = low_N + (high_N - low_N) // 2
        threshold_N = jax.lax.bitcast_convert_type(middle_N, jnp.float32)
        mass_N = jnp.sum(jnp.where(prob_NV >= threshold_N[:, None], prob_NV, 0), -1)
        enough_N = mass_N >= top_p
        return (
            jnp.where(enough_N, middle_N, low_N),
            jnp.where(enough_N, high_N, middle_N),
        )

    low_N = jnp.zeros(prob_NV.shape[0], jnp.int32)
    above_one = jax.lax.bitcast_convert_type(jnp.float32(1.5), jnp.int32)
    low_N, _ = jax.lax.fori_loop(0, 31, halve, (low_N, low_N + above_one))
    return jax.lax.bitcast_convert_type(low_N, jnp.float32)


def _take(x_NV, token_N):
    return jnp.take_along_axis(x_NV, token_N[:, None], -1)[:, 0]
