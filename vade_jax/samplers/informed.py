"""VADE with a learned prior: answers to one item inform about items with similar hidden states.

VADE knows nothing about a prompt at first, visits it only a few times, and learns nothing from one prompt
about others. But the policy's hidden state at a prompt's last token, before any answer, predicts much of
the pass rate. This selector, which is ours and not from a paper, learns that prediction during training.
With x_i the features of item i and a, b its own decayed counts,

    logit mu_i = theta . x_i                           a regression on all answers
    p_i ~ Beta(s mu_i + a, s (1 - mu_i) + b)           the features count as s answers

s is learned. Each step's answers have a likelihood under each strength of a grid, given all earlier
answers; the strength with the largest total is used, and old steps fade as in the regression. If the
states carry no information, s falls. Most pass rates are near 0 or near 1, so s is often below 1, which
gives a U-shaped prior.

A batch is then chosen as by VADE: a draw from every posterior, scored by information gain, the top B. A
selector that knows which prompts are solved does not revisit them, and the policy may forget them
unnoticed; `uniform_share` draws a part of each batch uniformly.

The logit of a pass rate is theta . x_i with theta ~ N(mean, cov). A step's answers move the posterior of
theta to its mode, with the curvature there (Laplace). Between steps old evidence fades towards the prior
N(0, variance): with Lambda the inverse of cov,

    Lambda      <- memory Lambda + (1 - memory) / variance
    Lambda mean <- memory Lambda mean

so that directions in which no data come return to the prior, and never beyond it. (Only dividing cov by the
memory, as a plain filter does, makes it grow without bound there.) D features.
"""

import dataclasses
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import arrays, fields, rng, types
from vade_jax.samplers import base, beta, per_item, ranking
from vade_jax.types import Array

ITERATIONS = 20  # of Newton's method; far answers need some, as their steps are bounded
# Largest step of a logit in an iteration, so that Newton's method cannot jump across the mode
LARGEST_STEP = 2.0
# The strengths that are compared, evenly in their logarithm
STRENGTH_K = np.geomspace(0.1, 100, 13).astype(np.float32)
LEAST = 0.005  # a prior mean stays within LEAST and 1 - LEAST: at 0 or 1 no answer could move it


@dataclasses.dataclass(frozen=True)
class InformedOptions(beta.CountingOptions):
    dimensions: int = fields.number(16, at_least=1)  # Principal components of the features used
    memory: float = fields.fraction(0.98)  # Share of the evidence on theta and s that a step keeps
    variance: float = fields.number(1.0, above=0)  # Of the features' weights, before any evidence
    # Share of its own counts that a chosen item keeps after a step
    decay_selected: float = fields.fraction(0.2)
    # Share of its own counts that any other item keeps after a step
    decay_rest: float = fields.fraction(0.999)
    # Share of a batch that is drawn uniformly from all items, so that solved ones are asked again
    uniform_share: float = fields.fraction(0.0)


@chex.dataclass(frozen=True)
class Weights(types.Pytree):
    """The posterior of theta."""

    mean_D: Array  # float32
    cov_DD: Array  # float32


@chex.dataclass(frozen=True)
class InformedState(beta.BetaState):
    """Counts of every item, the posterior of theta, and the evidence for each strength."""

    feature_ID: Array  # float32, uncorrelated, of variance 1; the last one is 1
    weights: Weights
    likelihood_K: Array  # float32, log-likelihood of past answers under each of STRENGTH_K, decayed


def selector(options: InformedOptions) -> base.Sampler:
    """Returns the selector; `init` takes a vector for each item, and known pass rates."""
    decays = {"decay_selected": options.decay_selected, "decay_rest": options.decay_rest}

    def init(num_items: int, *, features: Array | None = None, **prior: Array) -> InformedState:
        if features is None:  # items cannot be distinguished
            features = np.zeros((num_items, 1), np.float32)
        per_item.check_vectors("informed", "features", features, num_items)
        known: dict[str, Any] = {
            "feature_ID": components(np.asarray(features, np.float32), options.dimensions),
            "weights": unknown(options.dimensions + 1, options.variance),
            "likelihood_K": np.zeros(len(STRENGTH_K), np.float32),
        }
        return beta.begin(InformedState, options, num_items, **prior, **known)

    def propose(state: InformedState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        p_I = beta.draw_any(keys.draw, *posterior(state))
        num_uniform = ranking.share_of(options.uniform_share, num_prompts)
        score_I = ranking.mix_uniform(beta.info_gain(p_I), keys.uniform, num_uniform)
        return ranking.best(score_I, keys.ties, num_prompts, options.num_rollouts, p_I)

    def update(state: InformedState, feedback: types.Feedback) -> InformedState:
        index_M, right_M, trials_M = feedback.index_M, feedback.successes_M, feedback.trials_M
        new_K = likelihoods(state, index_M, right_M, trials_M)
        weights = forget(state.weights, decay=options.memory, variance=options.variance)
        state = state.replace(
            weights=observe(weights, state.feature_ID[index_M], right_M, trials_M),
            likelihood_K=options.memory * state.likelihood_K + new_K,
        )
        return beta.counted(state, feedback, **decays)

    def believe(state: InformedState, proposal: types.Proposal) -> dict[str, Array]:
        index_M = proposal.index_M
        a_M, b_M = posterior(state, index_M)
        prior_M = prior_mean(state, index_M)
        return {
            "alpha": a_M - 1,
            "beta": b_M - 1,
            "posterior_mean": a_M / (a_M + b_M),
            "prob_mixed": beta.prob_mixed(a_M - 1, b_M - 1, proposal.num_rollouts_M),
            "informed/prior_mean": prior_M,
            "informed/strength": jnp.full_like(prior_M, strength(state)),
        }

    needs = base.Needs(items=(base.PerItem("features", "states"), beta.PASS_RATE))
    return base.compiled(init, propose, update, believe=believe, needs=needs)


SPEC = base.Spec("informed", InformedOptions, selector)


def prior_mean(state: InformedState, index: Array | slice = slice(None)) -> jax.Array:
    """Returns mu, the pass rate that the features predict, of some items or of all."""
    mean = predict(state.weights, state.feature_ID[index])
    return jnp.clip(mean, LEAST, 1 - LEAST)


def strength(state: InformedState) -> jax.Array:
    """Returns s, the likeliest number of answers that the features count as."""
    return jnp.asarray(STRENGTH_K)[jnp.argmax(state.likelihood_K)]


def posterior(
    state: InformedState, index: Array | slice = slice(None)
) -> tuple[jax.Array, jax.Array]:
    """Returns a and b, above 0, of the posterior Beta(a, b) of the pass rate of some items or of all."""
    s, mean = strength(state), prior_mean(state, index)
    return state.alpha_I[index] + s * mean, state.beta_I[index] + s * (1 - mean)


def likelihoods(state: InformedState, index_M: Array, right_M: Array, trials_M: Array) -> jax.Array:
    """Returns the log-likelihood of a step's answers under each strength, given all earlier answers."""
    mean_M, strength_K1 = prior_mean(state, index_M), jnp.asarray(STRENGTH_K)[:, None]
    a_KM = state.alpha_I[index_M] + strength_K1 * mean_M
    b_KM = state.beta_I[index_M] + strength_K1 * (1 - mean_M)
    log_beta = jax.scipy.special.betaln
    log_KM = log_beta(a_KM + right_M, b_KM + trials_M - right_M) - log_beta(a_KM, b_KM)
    return jnp.sum(log_KM, axis=1)


def components(feature_IE: np.ndarray, dimensions: int) -> np.ndarray:
    """Returns the first principal components of the features, with variance 1, and a column of ones.

    A direction in which items differ only by rounding is set to 0; otherwise it would count like any
    other. So is one beyond the rank of the features. E counts the features of the user or of the policy.
    """
    centred_IE = feature_IE.astype(np.float64)
    centred_IE -= feature_IE.mean(0, dtype=np.float64)
    variance_E, axis_EE = np.linalg.eigh(centred_IE.T @ centred_IE / len(feature_IE))
    first = np.argsort(variance_E)[::-1][:dimensions]
    first = first[variance_E[first] > 1e-9 * max(variance_E.max(), 1e-30)]
    feature_ID = np.zeros((len(feature_IE), dimensions + 1), np.float32)
    feature_ID[:, : len(first)] = centred_IE @ (axis_EE[:, first] / np.sqrt(variance_E[first]))
    feature_ID[:, -1] = 1
    return feature_ID


# ------------------------------------------------------------------------------ the regression
def unknown(num_features: int, variance: float) -> Weights:
    """Returns N(0, variance)."""
    return Weights(
        mean_D=jnp.zeros(num_features, jnp.float32),
        cov_DD=variance * jnp.eye(num_features, dtype=jnp.float32),
    )


def forget(weights: Weights, *, decay: float, variance: float) -> Weights:
    """Returns the posterior after a step without any answers."""
    inverse_DD = jnp.linalg.inv(weights.cov_DD)
    eye_DD = jnp.eye(len(weights.mean_D), dtype=jnp.float32)
    faded_DD = decay * inverse_DD + (1 - decay) / variance * eye_DD
    cov_DD = _symmetric(jnp.linalg.inv(faded_DD))
    return Weights(mean_D=cov_DD @ (decay * (inverse_DD @ weights.mean_D)), cov_DD=cov_DD)


def observe(weights: Weights, feature_MD: Array, right_M: Array, trials_M: Array) -> Weights:
    """Returns the mode of the posterior given all answers of a step at once, and the covariance there.

    One Newton step from the mean is not enough: from a logit of -4 with variance 2, eight of eight right
    answers would move it to +8.2, and the mode is at +0.8. An item with 0 answers has no effect.
    """
    chex.assert_equal_shape([right_M, trials_M])
    inverse_DD = jnp.linalg.inv(weights.cov_DD)

    def curvature(theta_D: Array) -> Array:
        p_M = jax.nn.sigmoid(feature_MD @ theta_D)
        return inverse_DD + (feature_MD.T * (trials_M * p_M * (1 - p_M))) @ feature_MD

    def newton(_: int, theta_D: Array) -> Array:
        p_M = jax.nn.sigmoid(feature_MD @ theta_D)
        slope_D = feature_MD.T @ (right_M - trials_M * p_M)
        slope_D -= inverse_DD @ (theta_D - weights.mean_D)
        step_D = jnp.linalg.solve(curvature(theta_D), slope_D)
        largest = jnp.max(jnp.abs(feature_MD @ step_D))
        return theta_D + step_D / jnp.maximum(1, largest / LARGEST_STEP)

    mode_D = jax.lax.fori_loop(0, ITERATIONS, newton, weights.mean_D)
    return Weights(mean_D=mode_D, cov_DD=_symmetric(jnp.linalg.inv(curvature(mode_D))))


def predict(weights: Weights, feature_ID: Array) -> jax.Array:
    """Returns the expected pass rate of every item, with the uncertainty of theta averaged out.

    E[sigmoid(logit)] is about sigmoid(mean / sqrt(1 + pi variance / 8)) (MacKay 1992, doi
    10.1162/neco.1992.4.5.720).
    """

    def predicted(x_ID: Array) -> jax.Array:
        # Written out, XLA makes one loop over the items of it, seven times as fast as products of matrices.
        cov, x = weights.cov_DD, [x_ID[:, d] for d in range(x_ID.shape[1])]
        logit_I = sum(mean * x_I for mean, x_I in zip(weights.mean_D, x, strict=True))
        crossed = lambda d: 2 * sum(cov[d, e] * x[e] for e in range(d))
        variance_I = sum(x_I * (cov[d, d] * x_I + crossed(d)) for d, x_I in enumerate(x))
        return jax.nn.sigmoid(logit_I / jnp.sqrt(1 + jnp.pi * variance_I / 8))

    return arrays.in_two(predicted, feature_ID)


def _symmetric(x_DD: Array) -> Array:
    # Rounding makes an inverse a little uneven, and hundreds of steps would let that grow.
    return (x_DD + x_DD.T) / 2
