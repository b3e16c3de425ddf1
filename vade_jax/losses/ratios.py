"""Log-ratios of the trained policy to the one that made the answers, per token or per answer.

They are logarithms, because log-probs give these, and clamping and averaging are defined on them;
`policy.clipped` takes the exponential. Both functions have the same arguments: GRPO and GSPO are the same
loss with different log-ratios.
"""

import chex
import jax
import jax.numpy as jnp

from vade_jax import arrays
from vade_jax.types import Array

MAX_TOKEN = 20.0  # both signs, as verl
MAX_SEQUENCE = 10.0  # upwards only, as verl


def token(logp_NT: Array, old_logp_NT: Array, mask_NT: Array | None = None) -> jax.Array:
    """Returns log r_t = log pi(y_t) - log pi_old(y_t) (GRPO, arXiv 2402.03300).

    Args:
        logp_NT: log-probs of the policy that is trained.
        old_logp_NT: log-probs of the policy that made the answers.
        mask_NT: not used; makes `token` and `sequence` interchangeable.

    Returns:
        `log_ratio_NT`, clamped to +-20; a clamped token has gradient 0.
    """
    del mask_NT
    chex.assert_rank([logp_NT, old_logp_NT], 2)
    chex.assert_equal_shape([logp_NT, old_logp_NT])
    return jnp.clip(logp_NT - old_logp_NT, -MAX_TOKEN, MAX_TOKEN)


def sequence(logp_NT: Array, old_logp_NT: Array, mask_NT: Array) -> jax.Array:
    """Returns log s_t, the length-normalised log-ratio of the answer, on each of its tokens.

    log s = sum_t log r_t / |y| (Eq. 7 of GSPO, arXiv 2507.18071), in the token form of Eq. 14:
    log s_t = sg(log s) + log pi(y_t) - sg(log pi(y_t)). Every token has the value of its answer, so all are
    clipped together, and the gradient of its own log-prob. Averaged over the tokens of the answer, that is
    the gradient of s itself.

    Args:
        logp_NT: log-probs of the policy that is trained.
        old_logp_NT: log-probs of the policy that made the answers.
        mask_NT: 1 on the tokens of the answer.

    Returns:
        `log_ratio_NT`, at most 10.
    """
    chex.assert_rank([logp_NT, old_logp_NT, mask_NT], 2)
    chex.assert_equal_shape([logp_NT, old_logp_NT, mask_NT])
    mean_N = arrays.masked_mean(logp_NT - old_logp_NT, mask_NT, axis=1)
    stop = jax.lax.stop_gradient
    return jnp.minimum(logp_NT - stop(logp_NT) + stop(mean_N)[:, None], MAX_SEQUENCE)
