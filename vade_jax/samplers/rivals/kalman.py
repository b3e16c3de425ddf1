"""Kalman and KGPS: a Gaussian posterior of every logit pass rate that walks, with two ways to choose by it.

VADE forgets by decaying counts. Here the logit of every pass rate is a random walk, so every step widens its
posterior:

    every item         var <- var + noise_rest
    items rolled out   var <- var + noise_selected, then mean and var given k of n right

How fast the policy changes is not known in advance. So nine scales of both noises, 1/16 to 16, are compared
on the counts of the prompts rolled out. A step uses the mean of the scales, weighted by how well each has
predicted these counts.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import TypeVar

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, gaussian, per_item, ranking
from vade_jax.types import Array

SCALE_Q = (2.0 ** np.arange(-4, 5)).astype(np.float32)  # the noise scales that are compared


# ------------------------------------------------------------------------------ the walk
@dataclasses.dataclass(frozen=True)
class WalkOptions(base.Options):
    """How the logit pass rates walk; all variances are of the logit."""

    # Variance that a visit adds before its counts are used; without valid answers it is not a visit
    noise_selected: float = fields.number(0.15, at_least=0)
    noise_rest: float = fields.number(0.002, at_least=0)  # Variance that a step adds to every item
    # What is left of the evidence for the noise scales after a step
    memory: float = fields.fraction(0.98)


@chex.dataclass(frozen=True)
class KalmanState(types.Pytree):
    """The posterior of every item: log(p / (1 - p)) ~ N(mean, var)."""

    mean_I: jax.Array = per_item.starts(0.0)
    var_I: jax.Array = per_item.starts(4.0)
    # float32, log-probability of the counts of past steps under each noise scale, decayed
    evidence_Q: jax.Array


Walk = TypeVar("Walk", bound=KalmanState)


def begin(state: type[Walk]) -> Callable[[int], Walk]:
    """Returns an `init`; before any answers every logit is N(0, 4)."""
    return functools.partial(per_item.begin, state, evidence_Q=np.zeros_like(SCALE_Q))


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


# ------------------------------------------------------------------------------ Kalman
@dataclasses.dataclass(frozen=True)
class KalmanOptions(WalkOptions):
    # Factor on the standard deviation of the draws: 1 is Thompson sampling, 0 takes the mode
    temper: float = fields.number(0.5, at_least=0)
    # Information gain of an item with pass rate p, as in VADE
    info_gain: str = fields.choice("p(1-p)^2", *beta.INFO_GAINS)


def kalman(options: KalmanOptions) -> base.Sampler:
    """Returns tempered Thompson draws, scored as in VADE.

    This selector is from this project, not from a paper. KGPS is similar; we knew only its abstract.
    """
    info_gain = beta.INFO_GAINS[options.info_gain]

    def propose(state: KalmanState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        p_I = gaussian.draw(keys.draw, state.mean_I, state.var_I, options.temper)
        return ranking.best(info_gain(p_I), keys.ties, num_prompts, options.num_rollouts, p_I)

    update = functools.partial(walked, options)
    return base.compiled(begin(KalmanState), propose, update, believe=gaussian.believe)


KALMAN = base.Spec("kalman", KalmanOptions, kalman)


# ------------------------------------------------------------------------------ KGPS
# Points of the quadrature. Its error is within 1 % up to a logit variance of 2, 5 % at 4, and 25 % at 10.
NUM_POINTS = 5


@dataclasses.dataclass(frozen=True)
class KgpsOptions(WalkOptions):
    # Variance that a visit adds; 0: the walk is the same for every item
    noise_selected: float = fields.number(0.0, at_least=0)
    noise_rest: float = fields.number(0.01, at_least=0)  # Variance that a step adds to every item


@chex.dataclass(frozen=True)
class KgpsState(KalmanState):
    """The posterior, and the items that the warm-up has not visited."""

    # Every item is visited once before the posterior chooses.
    unseen_I: jax.Array = per_item.starts(True)


def kgps(options: KgpsOptions) -> base.Sampler:
    """Returns a selector after KGPS (arXiv 2607.27610): the B prompts with the largest E[p (1-p)].

    This is not the paper's program. We have read its abstract, and a few lines about it in another paper
    (arXiv 2609.38018). From the abstract come a Gaussian posterior of the logit, a Kalman step, process noise
    that grows with the size of the policy update, and a utility averaged over the posterior. From the other
    paper come the walk without a drift, a first visit of all prompts in steps that train, and E[p (1-p)] by
    5-point Gauss-Hermite quadrature.

    Nothing is drawn. The averaging explores: for a logit far from 0, the average of p (1-p) grows with the
    variance, so prompts that were solved or failed come back as their variance grows.

    Departures:
    - A selector does not know the size of the policy update, because the next prompts are chosen while the
      policy learns. Instead, the scale of the noise is learned from the counts by evidence.
    - Counts are treated as binomial (Laplace). The second-hand account uses the logit of the observed rate,
      with a plug-in noise that is infinite for groups all right or all wrong.
    - The top B, the prior and the noise are our own choices.
    """

    def propose(state: KgpsState, key: jax.Array, num_prompts: int) -> types.Proposal:
        score_I = gaussian.expectation(beta.outcome_variance, state.mean_I, state.var_I, NUM_POINTS)
        score_I = jnp.where(state.unseen_I, jnp.inf, score_I)
        return ranking.best(score_I, key, num_prompts, options.num_rollouts)

    def update(state: KgpsState, feedback: types.Feedback) -> KgpsState:
        unseen_I = state.unseen_I.at[feedback.index_M].set(False)
        return walked(options, state, feedback).replace(unseen_I=unseen_I)

    return base.compiled(begin(KgpsState), propose, update, believe=gaussian.believe)


KGPS = base.Spec("kgps", KgpsOptions, kgps)
