"""What an update minimises: the group-RL objective, and likelihood for the warm start."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp

from vade_jax.losses import kl, policy, ratios
from vade_jax.trainer.update import Objective, Totals
from vade_jax.types import Array, Batch, Metrics

RATIOS = {"token": ratios.token, "sequence": ratios.sequence}
KLS = {"k1": kl.k1, "k2": kl.k2, "k3": kl.k3}


@dataclasses.dataclass(frozen=True)
class PolicyLoss:
    """The knobs of GRPO (arXiv 2402.03300) and GSPO (arXiv 2507.18071).

    GRPO is ratio "token" with aggregate "token-mean"; GSPO is ratio "sequence" with
    "seq-mean-token-mean" and bounds near 1e-4.
    """

    ratio: str
    clip_low: float
    clip_high: float
    aggregate: str
    dual_clip: float | None = None
    kl: str = "k3"
    kl_coef: float = 0.0

    def __post_init__(self):
        for name, options in (
            ("ratio", RATIOS),
            ("kl", KLS),
            ("aggregate", policy.AGGREGATIONS),
        ):
            value = getattr(self, name)
            if value not in options:
                raise ValueError(f"loss.{name}={value!r}: one of {', '.join(options)}")


def group_rl(loss: PolicyLoss) -> Objective:
    """Returns clipped policy loss + kl_coef x KL to the reference, both aggregated alike."""
    log_ratio: Callable = RATIOS[loss.ratio]
    divergence: Callable = KLS[loss.kl]

    def objective(
        logp_NT: Array, batch: Batch, totals: Totals
    ) -> tuple[jax.Array, Metrics]:
        def reduce(x_NT):
            return policy.aggregate(
                x_NT,
                batch.mask_NT,
                loss.aggregate,
                num_tokens=totals.num_tokens,
                num_sequences=totals.num_sequences,
            )

        raise AssertionError  # completed when the losses' signatures are settled

    return objective


def likelihood() -> Objective:
    """Returns the mean negative log-likelihood of the answers' tokens."""

    def objective(
        logp_NT: Array, batch: Batch, totals: Totals
    ) -> tuple[jax.Array, Metrics]:
        return -jnp.sum(logp_NT * batch.mask_NT) / totals.num_tokens, {}

    return objective
