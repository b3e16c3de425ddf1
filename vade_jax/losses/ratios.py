"""Log-ratios of the policy to the policy that made the answers, for a token or a sequence."""

import chex
import jax
import jax.numpy as jnp

from vade_jax import arrays
from vade_jax.types import Array

MAX_TOKEN = 20.0  # both signs, as verl
MAX_SEQUENCE = 10.0  # upwards only, as verl


def token(
    logp_NT: Array, old_logp_NT: Array, mask_NT: Array | None = None
) -> jax.Array:
    """Returns log r_t = log pi(y_t) - log pi_old(y_t), clamped to +-20 (GRPO, 2402.03300).

    The mask is not needed: it makes `token` and `sequence` interchangeable.
    """
    del mask_NT
    chex.assert_rank([logp_NT, old_logp_NT], 2)
    chex.assert_equal_shape([logp_NT, old_logp_NT])
    return jnp.clip(logp_NT - old_logp_NT, -MAX_TOKEN, MAX_TOKEN)


def sequence(logp_NT: Array, old_logp_NT: Array, mask_NT: Array) -> jax.Array:
    """Returns log s_t, the length-normalised sequence ratio in its token form.

    log s = sum_t log r_t / |y|; log s_t = sg(log s) + log pi(y_t) - sg(log pi(y_t)), Eq. 7 and 14
    of GSPO (arXiv 2507.18071): every token has the value of its sequence and its own gradient.
    Clamped to at most 10.
    """
    chex.assert_rank([logp_NT, old_logp_NT, mask_NT], 2)
    chex.assert_equal_shape([logp_NT, old_logp_NT, mask_NT])
    mean_N = arrays.masked_mean(logp_NT - old_logp_NT, mask_NT, axis=1)
    stop = jax.lax.stop_gradient
    return jnp.minimum(logp_NT - stop(logp_NT) + stop(mean_N)[:, None], MAX_SEQUENCE)
