"""Importance weights for answers that were sampled with other probabilities than the trainer's.

An engine (for example vLLM in bfloat16) gives the same token another probability than the trainer does with
the same weights, because their kernels and precision differ; with older weights the difference grows. So an
answer drawn from pi_rollout gets the weight w = pi_old / pi_rollout, where pi_old is the trainer's policy
before the update (decoupled PPO, arXiv:2505.24298). Single weights can be very large. The methods differ in
how they bound them:

    token       min(w, cap) of each token (truncated importance sampling, Ionides 2008; verl's default)
    sequence    min(w of the whole answer, cap): unbiased but for the cap, with more variance
    icepop      w of each token, and 0 where it is outside two bounds (IcePop, ringtech.notion.site/icepop)
    geometric   1, and 0 for an answer whose geometric mean of w is outside two bounds (verl, SkyRL)
    raw         w of each token, unbounded (AReaL's)

Weights carry no gradient and multiply the per-token loss after clipping. A token with weight 0 still counts
in the denominator of the loss, as in verl and NeMo-RL.
"""

from collections.abc import Callable, Sequence

import chex
import jax
import jax.numpy as jnp

from vade_jax.types import Array, Metrics

SQUARE = "rollout_corr/rollout_is_square_mean"
MAX_LOG = 20.0  # both signs, as verl
# Bounds of w, and of its geometric mean: verl's and NeMo-RL's for IcePop, SkyRL's for answers
BOUNDS = {"icepop": (0.5, 5.0), "geometric": (0.99, 1.01)}


def token(old_logp_NT: Array, rollout_logp_NT: Array, mask_NT: Array) -> jax.Array:
    """Returns log w of every token, 0 where the mask is 0."""
    # `where`: a masked log-prob may be -inf, and -inf x 0 is not 0.
    return jnp.where(jnp.asarray(mask_NT) > 0, old_logp_NT - rollout_logp_NT, 0.0)


def sequence(old_logp_NT: Array, rollout_logp_NT: Array, mask_NT: Array) -> jax.Array:
    """Returns log w of the whole answer, on each of its tokens."""
    log_NT = token(old_logp_NT, rollout_logp_NT, mask_NT)
    return jnp.broadcast_to(jnp.sum(log_NT, axis=1, keepdims=True), log_NT.shape)


def geometric(old_logp_NT: Array, rollout_logp_NT: Array, mask_NT: Array) -> jax.Array:
    """Returns the mean log w of the answer's tokens, on each of them: it does not grow with the length."""
    length_N1 = jnp.maximum(jnp.sum(mask_NT, axis=1, keepdims=True), 1)
    return sequence(old_logp_NT, rollout_logp_NT, mask_NT) / length_N1


LOG_WEIGHTS: dict[str, Callable[[Array, Array, Array], jax.Array]] = {
    "token": token,
    "sequence": sequence,
    "icepop": token,
    "geometric": geometric,
    "raw": token,
}


def weights(
    name: str,
    old_logp_NT: Array,
    rollout_logp_NT: Array,
    mask_NT: Array,
    *,
    cap: float = 2.0,
    bounds: Sequence[float] | None = None,
) -> jax.Array:
    """Returns `weight_NT`, 0 where the mask is 0, without gradient; log w is clamped to +-20.

    Args:
        name: a key of LOG_WEIGHTS.
        old_logp_NT: log-probs of the trainer before the update.
        rollout_logp_NT: log-probs of the engine when it made the answers.
        mask_NT: 1 on the tokens of the answer.
        cap: largest weight, of `token` and `sequence`; 2 is verl's and SkyRL's.
        bounds: smallest and largest weight that is not 0, of `icepop` and `geometric`; None: BOUNDS.

    Raises:
        ValueError: `name` is unknown.
    """
    chex.assert_rank([old_logp_NT, rollout_logp_NT, mask_NT], 2)
    chex.assert_equal_shape([old_logp_NT, rollout_logp_NT, mask_NT])
    if name not in LOG_WEIGHTS:
        raise ValueError(f"importance={name!r}: choose one of {list(LOG_WEIGHTS)}")
    log_NT = LOG_WEIGHTS[name](old_logp_NT, rollout_logp_NT, mask_NT)
    weight_NT = jnp.exp(jnp.clip(log_NT, -MAX_LOG, MAX_LOG))
    if name in BOUNDS:
        low, high = bounds or BOUNDS[name]
        inside_NT = (weight_NT >= low) & (weight_NT <= high)
        weight_NT = jnp.where(inside_NT, weight_NT if name == "icepop" else 1.0, 0.0)
    elif name != "raw":
        weight_NT = jnp.minimum(weight_NT, cap)
    return jax.lax.stop_gradient(weight_NT * mask_NT)


def metrics(weight_NT: Array, mask_NT: Array, num_tokens: Array) -> dict[str, jax.Array]:
    """Returns the mean and the largest weight, the mean square, and the share of tokens with weight 0.

    `effective_size` takes the mean square, once it is that of the whole step.
    """
    mean = lambda x_NT: jnp.sum(x_NT * mask_NT) / num_tokens
    return {
        "rollout_corr/rollout_is_mean": mean(weight_NT),
        "rollout_corr/rollout_is_max": jnp.max(weight_NT),
        SQUARE: mean(weight_NT**2),
        "rollout_corr/masked": mean((weight_NT == 0).astype(jnp.float32)),
    }


def effective_size(metrics: Metrics) -> Metrics:
    """Returns the metrics of a step with the effective sample size instead of the mean square.

    (mean w)^2 / mean w^2, as a share of the tokens: 1 if all weights are equal, 0 if all are 0. A step
    without weights is returned unchanged.
    """
    if SQUARE not in metrics:
        return metrics
    rest = {name: value for name, value in metrics.items() if name != SQUARE}
    square, mean = metrics[SQUARE], metrics["rollout_corr/rollout_is_mean"]
    return rest | {"rollout_corr/rollout_is_eff_sample_size": mean**2 / square if square else 0.0}
