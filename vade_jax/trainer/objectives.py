"""What an update minimises: the group-RL objective, and likelihood for the warm start."""

import jax
import jax.numpy as jnp

from vade_jax import settings
from vade_jax.losses import importance, kl, policy, ratios
from vade_jax.trainer.update import Objective, Totals
from vade_jax.types import Array, Batch, Metrics

LOG_RATIOS = {"token": ratios.token, "sequence": ratios.sequence}


def group_rl(loss: settings.Loss, max_tokens: int | None = None) -> Objective:
    """Returns clipped policy loss + kl_coef x KL to the reference, both aggregated alike.

    GRPO is `loss.ratio` "token" with "token-mean", as in verl; its paper averages each answer first, which
    is "seq-mean-token-mean". GSPO is "sequence" with "seq-mean-token-mean" and bounds near 3e-4.

    Args:
        loss: the settings. A weight of `importance` needs old log-probs from the trainer.
        max_tokens: the limit of an answer, which is the constant of "seq-mean-token-sum-norm".
    """
    log_ratio = LOG_RATIOS[loss.ratio]

    def objective(logp_NT: Array, batch: Batch, totals: Totals) -> tuple[jax.Array, Metrics]:
        old_NT, mask_NT = batch.old_logp_NT, batch.mask_NT

        def reduce(x_NT):
            return policy.aggregate(
                x_NT, mask_NT, loss.aggregate, **totals._asdict(), scale=max_tokens
            )

        clipped = policy.clipped(
            log_ratio(logp_NT, old_NT, mask_NT),
            batch.advantage_N,
            clip_low=loss.clip_low,
            clip_high=loss.clip_high,
            dual_clip=loss.dual_clip or None,
        )
        loss_NT, token_NT = clipped.loss_NT, ratios.token(logp_NT, old_NT)
        metrics = policy.metrics(clipped, token_NT, mask_NT, totals.num_tokens)
        metrics |= agreement(logp_NT, batch, totals)
        if loss.importance not in settings.UNWEIGHTED:
            weight_NT = importance.weights(
                loss.importance,
                old_NT,
                batch.rollout_logp_NT,
                mask_NT,
                cap=loss.importance_cap,
            )
            loss_NT *= weight_NT
            metrics |= importance.metrics(weight_NT, mask_NT, totals.num_tokens)
        policy_loss = reduce(loss_NT)
        metrics["actor/pg_loss"] = policy_loss
        if not loss.kl_coef:  # without it the batch has no reference log-probs
            return policy_loss, metrics
        divergence = reduce(kl.estimate(logp_NT, batch.ref_logp_NT, loss.kl))
        metrics["actor/kl_loss"] = divergence
        return policy_loss + loss.kl_coef * divergence, metrics

    return objective


def agreement(logp_NT: Array, batch: Batch, totals: Totals) -> Metrics:
    """Returns the differences between trainer and engine, in probability and in log-probability.

    They are rounding errors in the first mini-batch of a step, when both have the same weights.
    """
    metrics, engine_NT = {}, batch.rollout_logp_NT
    differences = {"probs": jnp.exp(logp_NT) - jnp.exp(engine_NT), "logprobs": logp_NT - engine_NT}
    for name, difference_NT in differences.items():
        distance_NT = jnp.abs(difference_NT) * batch.mask_NT
        metrics[f"training/rollout_{name}_diff_mean"] = jnp.sum(distance_NT) / totals.num_tokens
        metrics[f"training/rollout_{name}_diff_max"] = jnp.max(distance_NT)
    return metrics


def likelihood(logp_NT: Array, batch: Batch, totals: Totals) -> tuple[jax.Array, Metrics]:
    """Returns the mean negative log-likelihood of the answers' tokens; an `Objective`."""
    return -jnp.sum(logp_NT * batch.mask_NT) / totals.num_tokens, {}
