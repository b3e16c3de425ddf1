"""Importance weights for answers that an engine sampled with slightly other probabilities.

The engine (vLLM in bfloat16, say) and the trainer give the same token different probabilities at the same
weights: other kernels, other precision. An answer drawn from pi_rollout counts for pi_old, the trainer's,
with the weight w = pi_old / pi_rollout. Single tokens can have enormous weights, which is why they are
truncated or dropped. The weights carry no gradient and multiply the per-token loss after clipping.
"""

import chex
import jax
import jax.numpy as jnp

from vade_jax import arrays
from vade_jax.types import Array, Metrics

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


def banded(
    old_logp_NT: Array,
    rollout_logp_NT: Array,
    mask_NT: Array,
    *,
    level: str = "token",
    low: float = 0.5,
    high: float = 5.0,
) -> jax.Array:
    """Returns w where low <= w <= high and 0 elsewhere (IcePop, arXiv 2510.18855).

    Arguments as in `ratio`. What both sides disagree about is not learned from at all.
    """
    weight_NT = ratio(old_logp_NT, rollout_logp_NT, mask_NT, level=level)
    return jnp.where((weight_NT >= low) & (weight_NT <= high), weight_NT, 0)


def normalized(weight_NT: Array, mask_NT: Array, *, level: str = "token") -> jax.Array:
    """Returns weights divided by their mean over tokens, or over answers at level "sequence"."""
    mean = arrays.masked_mean(weight_NT, mask_NT)
    if level == "sequence":
        mean_N = arrays.masked_mean(weight_NT, mask_NT, axis=1)
        mean = arrays.masked_mean(mean_N, jnp.any(mask_NT > 0, axis=1))
    return weight_NT / jnp.where(mean > 1e-8, mean, 1)


def metrics(weight_NT: Array, mask_NT: Array) -> Metrics:
    """Returns mean, std and effective share of the tokens, 1 / mean((w / mean)^2), under verl's names."""
    mean = arrays.masked_mean(weight_NT, mask_NT)
    square = arrays.masked_mean(weight_NT**2, mask_NT)
    name = "rollout_corr/rollout_is_"
    return {
        f"{name}mean": mean,
        f"{name}std": jnp.sqrt(jnp.maximum(square - mean**2, 0)),
        f"{name}eff_sample_size": mean**2 / jnp.maximum(square, 1e-8),
    }
