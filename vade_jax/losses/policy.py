"""The clipped policy loss of a token, and the one function that reduces tokens to a scalar.

GRPO is `clipped(ratios.token(...))`, GSPO is `clipped(ratios.sequence(...))`. GSPO reduces with
"seq-mean-token-mean". So does GRPO's paper (arXiv 2402.03300), which averages each answer first; verl's GRPO,
and ours, reduces with "token-mean", so that long answers weigh more.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from vade_jax.types import Array, Metrics

AGGREGATIONS = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)


# ------------------------------------------------------------------------------ per token
class Clipped(NamedTuple):
    """PPO's loss of every token, and where one of its bounds was active."""

    loss_NT: jax.Array
    by_clip_NT: Array  # bool
    by_ceiling_NT: Array  # bool, the dual clip


def clipped(
    log_ratio_NT: Array,
    advantage_N: Array,
    *,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
) -> Clipped:
    """Returns -min(r A, clip(r, 1 - clip_low, 1 + clip_high) A) of every token, PPO's loss.

    PPO is arXiv 1707.06347; two bounds instead of one are DAPO's (arXiv 2503.14476). Tokens after the end of
    an answer have garbage, which `aggregate` masks.

    Args:
        log_ratio_NT: log r, from `ratios`.
        advantage_N: A, the same for all tokens of an answer.
        clip_low: where A < 0, a ratio below 1 - clip_low has no gradient.
        clip_high: where A > 0, a ratio above 1 + clip_high has no gradient.
        dual_clip: c > 1: where A < 0, the loss is at most c |A| (arXiv 1912.09729); None: no bound. verl
            uses 3 with token ratios and none with sequence ratios.

    Raises:
        ValueError: `dual_clip` is not above 1.
    """
    chex.assert_rank([log_ratio_NT, advantage_N], [2, 1])
    chex.assert_equal_shape_prefix([log_ratio_NT, advantage_N], 1)
    if dual_clip is not None and not dual_clip > 1:
        raise ValueError(f"dual_clip={dual_clip}: set it above 1, or to None for none")
    advantage_N1 = advantage_N[:, None]
    ratio_NT = jnp.exp(log_ratio_NT)
    free_NT = -advantage_N1 * ratio_NT
    bound_NT = -advantage_N1 * jnp.clip(ratio_NT, 1 - clip_low, 1 + clip_high)
    loss_NT = jnp.maximum(free_NT, bound_NT)
    ceiling_N1 = jnp.full_like(advantage_N1, jnp.inf)
    if dual_clip is not None:
        ceiling_N1 = jnp.where(advantage_N1 < 0, -dual_clip * advantage_N1, jnp.inf)
    return Clipped(jnp.minimum(loss_NT, ceiling_N1), bound_NT > free_NT, loss_NT > ceiling_N1)


def metrics(
    surrogate: Clipped, token_log_ratio_NT: Array, mask_NT: Array, num_tokens: Array | None = None
) -> Metrics:
    """Returns verl's clip fractions and its estimate -log r of the KL, as means over tokens.

    Args:
        surrogate: from `clipped`.
        token_log_ratio_NT: from `ratios.token`, whichever ratio was clipped.
        mask_NT: 1 on the tokens that count.
        num_tokens: tokens of the entire update; the values of its micro-batches then add up to those of the
            update. Default: those of `mask_NT`.
    """
    chex.assert_equal_shape([surrogate.loss_NT, token_log_ratio_NT, mask_NT])
    per_token = {
        "actor/pg_clipfrac": surrogate.by_clip_NT,
        "actor/pg_clipfrac_lower": surrogate.by_ceiling_NT,
        "actor/ppo_kl": -token_log_ratio_NT,
    }
    return {
        name: aggregate(x_NT, mask_NT, "token-mean", num_tokens=num_tokens)
        for name, x_NT in per_token.items()
    }


# ------------------------------------------------------------------------------ reduction
def aggregate(
    x_NT: Array,
    mask_NT: Array,
    how: str,
    *,
    num_tokens: Array | None = None,
    num_sequences: Array | None = None,
    scale: Array | int | None = None,
) -> jax.Array:
    """Returns per-token values reduced to a scalar, named as in verl.

    token-mean               sum_nt(x m) / num_tokens
    token-sum                sum_nt(x m)
    seq-mean-token-sum       sum_nt(x m) / num_sequences
    seq-mean-token-mean      sum_n(sum_t(x m) / sum_t(m)) / num_sequences
    seq-mean-token-sum-norm  sum_nt(x m) / (num_sequences scale)      (Dr. GRPO, arXiv 2503.20783)

    Args:
        x_NT: values.
        mask_NT: 1 on the tokens that count.
        how: one of AGGREGATIONS.
        num_tokens: tokens of the entire update, if this is one micro-batch of it: the losses of
            micro-batches then add up to the loss of the batch. Default: those of `mask_NT`.
        num_sequences: sequences of the entire update. Default: those with a token in `mask_NT`.
        scale: a constant length. Default: T.

    Raises:
        ValueError: `how` is unknown.
    """
    chex.assert_rank([x_NT, mask_NT], 2)
    chex.assert_equal_shape([x_NT, mask_NT])
    if how not in AGGREGATIONS:
        raise ValueError(f"aggregation {how!r}: choose one of {list(AGGREGATIONS)}")
    count_N = jnp.sum(mask_NT, axis=1)
    sum_N = jnp.sum(x_NT * mask_NT, axis=1)
    if how == "token-sum":
        return jnp.sum(sum_N)
    if how == "token-mean":
        if num_tokens is None:
            num_tokens = jnp.sum(count_N)
        return jnp.sum(sum_N) / jnp.maximum(num_tokens, 1)
    if num_sequences is None:
        num_sequences = jnp.sum(count_N > 0)
    if how == "seq-mean-token-mean":
        sum_N = sum_N / jnp.maximum(count_N, 1)
    elif how == "seq-mean-token-sum-norm":
        sum_N = sum_N / (x_NT.shape[1] if scale is None else scale)
    return jnp.sum(sum_N) / jnp.maximum(num_sequences, 1)
