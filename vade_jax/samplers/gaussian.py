"""A Gaussian posterior of every item's logit pass rate, log(p / (1 - p)) ~ N(mean, var): Kalman and KGPS.

A Beta posterior can only forget. This one can also drift, at a rate set by the variance. The counts
are binomial, so conditioning on them has no closed form: `condition` takes two steps towards the mode of the
posterior and the curvature there (Laplace). Where an exact value is needed, 32-point Gauss-Hermite quadrature
computes it.

The logit of every pass rate is a random walk, so every step widens its posterior:

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
from vade_jax.samplers import base, beta, per_item, ranking
from vade_jax.samplers.base import State
from vade_jax.types import Array

NUM_NEWTON = 2
MAX_MOVE = 2.0  # largest Newton step on the logit


def quadrature(num_points: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns node_Z and weight_Z with E[f(x)] = sum_z weight_z f(node_z) for x ~ N(0, 1)."""
    node_Z, weight_Z = np.polynomial.hermite_e.hermegauss(num_points)
    return node_Z.astype(np.float32), (weight_Z / weight_Z.sum()).astype(np.float32)


NUM_POINTS = 32
NODE_Z, WEIGHT_Z = quadrature(NUM_POINTS)


def draw(key: jax.Array, mean_I: Array, var_I: Array, temper: float = 1.0) -> jax.Array:
    """Returns one draw of every pass rate, sigma(mean + temper sqrt(var) e), e ~ N(0, 1)."""
    chex.assert_equal_shape([mean_I, var_I])
    noise_I = jax.random.normal(key, mean_I.shape)
    return jax.nn.sigmoid(mean_I + temper * jnp.sqrt(var_I) * noise_I)


def condition(
    mean_M: Array, var_M: Array, successes_M: Array, trials_M: Array
) -> tuple[Array, Array]:
    """Returns the mean and variance of the logit after k of n answers were right (Laplace).

    Two bounded Newton steps from x = mean towards the mode of the posterior: with p = sigma(x),
    x += clip((k - n p - (x - mean) / var) / (n p (1-p) + 1 / var), -2, 2); then
    var = 1 / (n p (1-p) + 1 / var) at that x. Answers far from what was expected move x only part of the
    way: from N(-4, 2), eight of eight right answers move it to 0, and the mode is at +0.8.
    """

    def precision(p_M: Array) -> Array:
        return trials_M * p_M * (1 - p_M) + 1 / var_M

    # Far from 0 the sigmoid is flat and a full Newton step would overshoot, so steps are clipped.
    x_M = mean_M
    for _ in range(NUM_NEWTON):
        p_M = jax.nn.sigmoid(x_M)
        slope_M = successes_M - trials_M * p_M - (x_M - mean_M) / var_M
        x_M = x_M + jnp.clip(slope_M / precision(p_M), -MAX_MOVE, MAX_MOVE)
    return x_M, 1 / precision(jax.nn.sigmoid(x_M))


def log_evidence(mean_M: Array, var_M: Array, successes_M: Array, trials_M: Array) -> jax.Array:
    """Returns log P(one given sequence of k right of n answers), with the logit integrated out."""
    x_MZ = mean_M[:, None] + jnp.sqrt(var_M)[:, None] * NODE_Z
    right_MZ = successes_M[:, None] * jax.nn.log_sigmoid(x_MZ)
    wrong_MZ = (trials_M - successes_M)[:, None] * jax.nn.log_sigmoid(-x_MZ)
    return jax.nn.logsumexp(right_MZ + wrong_MZ, axis=1, b=WEIGHT_Z)


def expectation(
    f: Callable[[Array], Array], mean_I: Array, var_I: Array, num_points: int = NUM_POINTS
) -> Array:
    """Returns E[f(p)] of every item; `f` must work elementwise on arrays of any shape."""
    node_Z, weight_Z = quadrature(num_points)
    x_IZ = mean_I[:, None] + jnp.sqrt(var_I)[:, None] * node_Z
    return f(jax.nn.sigmoid(x_IZ)) @ weight_Z


def posterior_mean(mean_M: Array, var_M: Array) -> Array:
    return expectation(lambda p_MZ: p_MZ, mean_M, var_M)


def prob_mixed(mean_M: Array, var_M: Array, num_rollouts: int | Array) -> jax.Array:
    """Returns the probability that G answers are neither all right nor all wrong."""
    num_M = jnp.broadcast_to(jnp.asarray(num_rollouts, jnp.float32), mean_M.shape)
    all_right_M = jnp.exp(log_evidence(mean_M, var_M, num_M, num_M))
    all_wrong_M = jnp.exp(log_evidence(mean_M, var_M, jnp.zeros_like(num_M), num_M))
    return 1 - all_right_M - all_wrong_M


def believe(state: State, proposal: types.Proposal) -> dict[str, Array]:
    """Implements `Sampler.believe` for states with `mean_I` and `var_I`."""
    mean_M, var_M = state.mean_I[proposal.index_M], state.var_I[proposal.index_M]
    return {
        "posterior_mean": posterior_mean(mean_M, var_M),
        "prob_mixed": prob_mixed(mean_M, var_M, proposal.num_rollouts_M),
    }


# ------------------------------------------------------------------------------ the walk
SCALE_Q = (2.0 ** np.arange(-4, 5)).astype(np.float32)  # the noise scales that are compared


@dataclasses.dataclass(frozen=True)
class WalkOptions(base.Options):
    """How the logit pass rates walk; all variances are of the logit."""

    # Variance that a visit adds before its counts are used; without valid answers it is not a visit
    noise_selected: float = fields.number(0.15, at_least=0)
    noise_rest: float = fields.number(0.002, at_least=0)  # Variance that a step adds to every item
    # Share of the evidence for the noise scales that a step keeps
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
    new_mean_M, new_var_M = condition(mean_M, var_M, *counts)

    def evidence(scale: Array) -> jax.Array:
        """Returns the log-probability of this step's counts if the noise has this scale."""
        var_M = state.var_I[index_M] + scale * (options.noise_selected + options.noise_rest)
        return jnp.sum(asked_M * log_evidence(mean_M, var_M, *counts))

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
        p_I = draw(keys.draw, state.mean_I, state.var_I, options.temper)
        return ranking.best(info_gain(p_I), keys.ties, num_prompts, options.num_rollouts, p_I)

    update = functools.partial(walked, options)
    return base.compiled(begin(KalmanState), propose, update, believe=believe)


KALMAN = base.Spec("kalman", KalmanOptions, kalman)


# ------------------------------------------------------------------------------ KGPS
# Points of the quadrature. Its error is within 1 % up to a logit variance of 2, 5 % at 4, and 25 % at 10.
KGPS_POINTS = 5


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

    This is not the paper's code. We could read its abstract and a few lines about it in another paper
    (arXiv 2609.38018). From the abstract come a Gaussian posterior of the logit, a Kalman step, process
    noise that grows with the size of the policy update, and a utility averaged over the posterior. From
    the other paper come the walk without a drift, a first visit of all prompts in steps that train, and
    E[p (1-p)] by 5-point Gauss-Hermite quadrature.

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
        score_I = expectation(beta.outcome_variance, state.mean_I, state.var_I, KGPS_POINTS)
        score_I = jnp.where(state.unseen_I, jnp.inf, score_I)
        return ranking.best(score_I, key, num_prompts, options.num_rollouts)

    def update(state: KgpsState, feedback: types.Feedback) -> KgpsState:
        unseen_I = state.unseen_I.at[feedback.index_M].set(False)
        return walked(options, state, feedback).replace(unseen_I=unseen_I)

    return base.compiled(begin(KgpsState), propose, update, believe=believe)


KGPS = base.Spec("kgps", KgpsOptions, kgps)
