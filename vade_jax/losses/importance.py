"""Importance weights for answers that an engine sampled with slightly different probabilities.

With the same model weights, the engine (for example vLLM in bfloat16) and the trainer give the same token
different probabilities, because their kernels and precision differ. So an answer drawn from pi_rollout gets
the importance weight w = pi_old / pi_rollout, where pi_old is the trainer's policy. Single tokens can have
enormous importance weights, so these are truncated. They carry no gradient and multiply the per-token loss
after clipping.
"""

import chex
import jax
import jax.numpy as jnp

from vade_jax.types import Array

MAX_LOG = 20.0  # both signs, as verl


def token(old_logp_NT: Array, rollout_logp_NT: Array, mask_NT: Array) -> Array:
    """Returns log w of every token; the unused `mask_NT` makes it interchangeable with `sequence`."""
    del mask_NT
    return old_logp_NT - rollout_logp_NT


def sequence(old_logp_NT: Array, rollout_logp_NT: Array, mask_NT: Array) -> jax.Array:
    """Returns log w of the whole answer, on each of its tokens: unbiased, but with more variance."""
    log_NT = old_logp_NT - rollout_logp_NT
    log_N1 = jnp.sum(log_NT * mask_NT, axis=1, keepdims=True)
    return jnp.broadcast_to(log_N1, log_NT.shape)


LEVELS = {"token": token, "sequence": sequence}


def truncated(
    old_logp_NT: Array,
    rollout_logp_NT: Array,
    mask_NT: Array,
    *,
    level: str = "token",
    cap: float = 2.0,
) -> jax.Array:
    """Returns min(w, cap): truncated importance sampling (Ionides 2008; verl's default).

    Args:
        old_logp_NT: log-probs of the trainer at the weights that made the answers.
        rollout_logp_NT: log-probs of the engine.
        mask_NT: 1 on the tokens of the answer.
        level: a key of LEVELS: whether a token or a whole answer has one weight.
        cap: largest weight of a token or answer.

    Returns:
        `weight_NT`, 0 where the mask is 0, without gradient; log w is clamped to +-20.

    Raises:
        ValueError: `level` is unknown.
    """
    chex.assert_rank([old_logp_NT, rollout_logp_NT, mask_NT], 2)
    chex.assert_equal_shape([old_logp_NT, rollout_logp_NT, mask_NT])
    if level not in LEVELS:
        raise ValueError(f"level={level!r}: choose one of {list(LEVELS)}")
    log_NT = jnp.clip(LEVELS[level](old_logp_NT, rollout_logp_NT, mask_NT), -MAX_LOG, MAX_LOG)
    return jax.lax.stop_gradient(jnp.minimum(jnp.exp(log_NT) * mask_NT, cap))
