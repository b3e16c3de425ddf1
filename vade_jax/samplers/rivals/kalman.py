"""Kalman: a Gaussian posterior of the logit pass rate that drifts, drawn with little noise.

This selector is from this project, not from a paper. KGPS (arXiv 2607.27610) is similar; we knew only its
abstract. VADE forgets by decaying counts. Here the logit of every pass rate is a random walk, so every step
widens its posterior:

    every item         var <- var + noise_rest
    items rolled out   var <- var + noise_selected, then mean and var given k of n right

How fast the policy changes is not known in advance. So nine scales of both noises, 1/16 to 16, are compared
on the counts of the prompts rolled out. A step uses the mean of the scales, weighted by how well each has
predicted these counts.
"""

import dataclasses
from typing import Any, TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, gaussian, per_item, ranking
from vade_jax.types import Array

SCALE_Q = (2.0 ** np.arange(-4, 5)).astype(np.float32)  # the noise scales that are compared


@dataclasses.dataclass(frozen=True)
class WalkOptions(base.Options):
    """How the logit pass rates start and walk; all variances are of the logit."""

    prior_mean: float = fields.number(0.0)  # Prior mean of every logit pass rate
    prior_var: float = fields.number(4.0, above=0)  # Prior variance of every logit pass rate
    # Variance that a visit adds before its counts are used; without valid answers it is not a visit
    noise_selected: float = fields.number(0.15, at_least=0)
    noise_rest: float = fields.number(0.002, at_least=0)  # Variance that a step adds to every item
    # What is left of the evidence for the noise scales after a step
    memory: float = fields.fraction(0.98)


@dataclasses.dataclass(frozen=True)
class KalmanOptions(WalkOptions):
    # Factor on the standard deviation of the draws: 1 is Thompson sampling, 0 takes the mode
    temper: float = fields.number(0.5, at_least=0)
    # Information gain of an item with pass rate p, as in VADE
    info_gain: str = fields.choice("p(1-p)^2", *beta.INFO_GAINS)


@chex.dataclass(frozen=True)
class KalmanState(types.Pytree):
    """The posterior of every item: log(p / (1 - p)) ~ N(mean, var)."""

    mean_I: jax.Array  # float32
    var_I: jax.Array  # float32
    # float32, log-probability of the counts of past steps under each noise scale, decayed
    evidence_Q: jax.Array


def selector(options: KalmanOptions) -> base.Sampler:
    """Returns the Kalman selector: tempered Thompson draws, scored as in VADE."""
    info_gain = beta.INFO_GAINS[options.info_gain]

    def init(num_items: int) -> KalmanState:
        return KalmanState(**begin(options, num_items))

    def propose(state: KalmanState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        p_I = gaussian.draw(keys.draw, state.mean_I, state.var_I, options.temper)
        return ranking.best(info_gain(p_I), keys.ties, num_prompts, options.num_rollouts, p_I)

    def update(state: KalmanState, feedback: types.Feedback) -> KalmanState:
        return walked(options, state, feedback)

    return base.compiled(init, propose, update, believe=gaussian.believe)


SPEC = base.Spec("kalman", KalmanOptions, selector)


Walk = TypeVar("Walk", bound=KalmanState)


def begin(options: WalkOptions, num_items: int) -> dict[str, Any]:
    """Returns the arrays of the state before any answers."""
    prior = {"mean_I": float(options.prior_mean), "var_I": float(options.prior_var)}
    return {**per_item.filled(num_items, **prior), "evidence_Q": np.zeros_like(SCALE_Q)}


def walked(options: WalkOptions, state: Walk, feedback: types.Feedback) -> Walk:
    """Returns the state one step later: the logits have walked, and the step's counts are in."""
    index_M, asked_M = feedback.index_M, feedback.trials_M > 0
    counts = feedback.successes_M, feedback.trials_M
    # Predict: the walk adds variance. Then correct, where there are answers.
    scale = noise_scale(state.evidence_Q)
    mean_M, rest_I = state.mean_I[index_M], state.var_I + scale * options.noise_rest
    var_M = rest_I[index_M] + scale * options.noise_selected * asked_M
    new_mean_M, new_var_M = gaussian.condition(mean_M, var_M, *counts)

    def evidence(scale: Array) -> jax.Array:
        """Returns the log-probability of this step's counts if the noise has this scale."""
        var_M = state.var_I[index_M] + scale * (options.noise_selected + options.noise_rest)
        return jnp.sum(asked_M * gaussian.log_evidence(mean_M, var_M, *counts))

    return state.replace(
        mean_I=state.mean_I.at[index_M].set(new_mean_M),
        var_I=rest_I.at[index_M].set(new_var_M),
        evidence_Q=options.memory * state.evidence_Q + jax.vmap(evidence)(SCALE_Q),
    )


def noise_scale(evidence_Q: Array) -> jax.Array:
    """Returns exp(sum_q w_q log s_q): the geometric mean of the noise scales, weighted by evidence.

    w_q is proportional to the probability of past counts under scale s_q. The mean is geometric because
    the scales are powers of two: 1/16 and 16 with equal weights give 1.
    """
    return jnp.exp(jnp.sum(jax.nn.softmax(evidence_Q) * jnp.log(SCALE_Q)))
