"""Importance weights for answers that an engine sampled with slightly other probabilities.

The engine (vLLM in bfloat16, say) and the trainer give the same token different probabilities at the same
weights: other kernels, other precision. An answer drawn from pi_rollout counts for pi_old, the trainer's,
with the weight w = pi_old / pi_rollout. Single tokens can have enormous weights, which is why they are
truncated. The weights carry no gradient and multiply the per-token loss after clipping.
"""

import chex
import jax
import jax.numpy as jnp

from vade_jax.types import Array

LEVELS = ("token", "sequence")


def ratio(old_logp_NT: Array, rollout_logp_NT: Array, mask_NT: Array, *, level: str) -> jax.Array:
    """Returns the weight w of every token, before it is truncated.

    Args:
        old_logp_NT: log-probs of the trainer at the weights that made the answers.
        rollout_logp_NT: log-probs of the engine.
        mask_NT: 1 on the tokens of the answer.
        level: "token" is the ratio of the token; "sequence" the product over its answer, which is
            unbiased and varies more.

    Returns:
        `weight_NT`, 0 where the mask is 0; its logarithm is clamped to +-20.

    Raises:
        ValueError: `level` is unknown.
    """
    chex.assert_rank([old_logp_NT, rollout_logp_NT, mask_NT], 2)
    chex.assert_equal_shape([old_logp_NT, rollout_logp_NT, mask_NT])
    if level not in LEVELS:
        raise ValueError(f"level={level!r}: choose one of {list(LEVELS)}")
    log_NT = old_logp_NT - rollout_logp_NT
    if level == "sequence":
        log_N1 = jnp.sum(log_NT * mask_NT, axis=1, keepdims=True)
        log_NT = jnp.broadcast_to(log_N1, log_NT.shape)
    return jax.lax.stop_gradient(jnp.exp(jnp.clip(log_NT, -20, 20)) * mask_NT)


def truncated(
    old_logp_NT: Array,
    rollout_logp_NT: Array,
    mask_NT: Array,
    *,
    level: str = "token",
    cap: float = 2.0,
) -> jax.Array:
    """Returns min(w, cap): truncated importance sampling (Ionides 2008; verl's default).

    Arguments as in `ratio`; `cap` bounds what one token or answer can weigh.
    """
    return jnp.minimum(ratio(old_logp_NT, rollout_logp_NT, mask_NT, level=level), cap)
