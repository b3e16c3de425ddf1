"""What an update minimises: the group-RL objective, and likelihood for the warm start."""

import dataclasses

import jax
import jax.numpy as jnp

from vade_jax.losses import importance, kl, policy, ratios
from vade_jax.trainer.update import Objective, Totals
from vade_jax.types import Array, Batch, Metrics

LOG_RATIOS = {"token": ratios.token_log, "sequence": ratios.sequence_log}


@dataclasses.dataclass(frozen=True)
class PolicyLoss:
    """The knobs of GRPO (arXiv 2402.03300) and GSPO (arXiv 2507.18071).

    GRPO is ratio "token" with aggregate "token-mean"; GSPO is ratio "sequence" with
    "seq-mean-token-mean" and bounds near 3e-4. `dual_clip` None is none. `importance` "token" or
    "sequence" weighs the loss by the truncated ratio of trainer to engine, at most
    `importance_cap`; it needs old log-probs that the trainer made. `scale` is the constant length of
    "seq-mean-token-sum-norm", the longest that an answer may be.
    """

    ratio: str
    clip_low: float
    clip_high: float
    aggregate: str
    dual_clip: float | None = None
    kl: str = "k3"
    kl_coef: float = 0.0
    importance: str | None = None
    importance_cap: float = 2.0
    scale: float | None = None

    def __post_init__(self):
        fields = (
            ("ratio", LOG_RATIOS),
            ("kl", kl.ESTIMATORS),
            ("aggregate", policy.AGGREGATIONS),
            ("importance", (None, *importance.LEVELS)),
        )
        for name, options in fields:
            if (value := getattr(self, name)) not in options:
                known = ", ".join(map(str, options))
                raise ValueError(f"loss.{name}={value!r}: one of {known}")
        if not (0 <= self.clip_low < 1 and self.clip_high >= 0 and self.kl_coef >= 0):
            raise ValueError(
                f"loss: clip_low={self.clip_low} must be in [0, 1), "
                f"clip_high={self.clip_high} and kl_coef={self.kl_coef} at least 0"
            )
        if not self.importance_cap > 0:
            raise ValueError(
                f"loss.importance_cap={self.importance_cap}: must be above 0"
            )


def group_rl(loss: PolicyLoss) -> Objective:
    """Returns clipped policy loss + kl_coef x KL to the reference, both aggregated alike."""
    log_ratio = LOG_RATIOS[loss.ratio]
    clip = {
        "clip_low": loss.clip_low,
        "clip_high": loss.clip_high,
        "dual_clip": loss.dual_clip,
    }

    def objective(
        logp_NT: Array, batch: Batch, totals: Totals
    ) -> tuple[jax.Array, Metrics]:
        def reduce(x_NT):
            return policy.aggregate(
                x_NT,
                batch.mask_NT,
                loss.aggregate,
                **totals._asdict(),
                scale=loss.scale,
            )

        old_NT, mask_NT = batch.old_logp_NT, batch.mask_NT
        log_ratio_NT = log_ratio(logp_NT, old_NT, mask_NT)
        loss_NT = policy.clipped(log_ratio_NT, batch.advantage_N, **clip)
        metrics = policy.metrics(
            log_ratio_NT,
            batch.advantage_N,
            ratios.token_log(logp_NT, old_NT),
            mask_NT,
            num_tokens=totals.num_tokens,
            **clip,
        )
        metrics |= agreement(logp_NT, batch, totals)
        if loss.importance:
            weight_NT = importance.truncated(
                old_NT,
                batch.rollout_logp_NT,
                mask_NT,
                level=loss.importance,
                cap=loss.importance_cap,
            )
            loss_NT *= weight_NT
            metrics["rollout_corr/rollout_is_mean"] = policy.aggregate(
                weight_NT, mask_NT, "token-mean", num_tokens=totals.num_tokens
            )
        policy_loss = reduce(loss_NT)
        metrics["actor/pg_loss"] = policy_loss
        if not loss.kl_coef:  # then there is no reference to diverge from
            return policy_loss, metrics
        divergence = reduce(kl.estimate(logp_NT, batch.ref_logp_NT, loss.kl))
        metrics["actor/kl_loss"] = divergence
        return policy_loss + loss.kl_coef * divergence, metrics

    return objective


def agreement(logp_NT: Array, batch: Batch, totals: Totals) -> Metrics:
    """Returns by how much trainer and engine differ, in probability and in log-probability.

    Zero but for rounding in the first mini-batch of a step, when both have the same weights.
    """
    pairs = {
        "probs": jnp.exp(logp_NT) - jnp.exp(batch.rollout_logp_NT),
        "logprobs": logp_NT - batch.rollout_logp_NT,
    }
    metrics = {}
    for name, difference_NT in pairs.items():
        distance_NT = jnp.abs(difference_NT) * batch.mask_NT
        prefix = f"training/rollout_{name}_diff"
        metrics[f"{prefix}_mean"] = jnp.sum(distance_NT) / totals.num_tokens
        metrics[f"{prefix}_max"] = jnp.max(distance_NT)
    return metrics


def likelihood() -> Objective:
    """Returns the mean negative log-likelihood of the answers' tokens."""

    def objective(
        logp_NT: Array, batch: Batch, totals: Totals
    ) -> tuple[jax.Array, Metrics]:
        return -jnp.sum(logp_NT * batch.mask_NT) / totals.num_tokens, {}

    return objective
