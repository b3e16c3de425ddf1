"""VADE with a learned prior: what an item's answers tell of the items that the policy sees alike.

VADE begins blind at every prompt and meets each a handful of times, so what one prompt teaches about others
is lost. But the policy knows which prompts are alike: the state that it has at a prompt's last token, before
any answer, tells much of the pass rate. This selector, which is ours and not from a paper, learns what these
states tell while it trains. With x_i the features of item i and a, b its own decayed counts,

    logit mu_i = theta . x_i                           `logistic`: a regression on all answers
    p_i ~ Beta(s mu_i + a, s (1 - mu_i) + b)           the features count as s answers

Nobody sets s. Each step's answers have a likelihood under each strength of a grid, given what was known
before; the likeliest so far is taken, where old steps fade as the regression does. Where states tell nothing,
s falls. Most pass rates are near 0 or near 1, so s is often below 1: then the prior has the shape of a U.

A batch is then chosen as by VADE: a draw from every posterior, scored by information gain, the top B. A
selector that knows which prompts are solved does not come back to them, and a policy may unlearn them
unseen; `uniform_share` draws a part of each batch uniformly.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, logistic, per_item, ranking
from vade_jax.types import Array

# The strengths that are compared, evenly in their logarithm
STRENGTH_K = np.geomspace(0.1, 100, 13).astype(np.float32)
LEAST = 0.005  # a prior mean stays within LEAST and 1 - LEAST: at 0 or 1 no answer could move it


@dataclasses.dataclass(frozen=True)
class InformedOptions(beta.CountingOptions):
    dimensions: int = fields.number(16, at_least=1)  # Principal components of the features used
    memory: float = fields.fraction(0.98)  # What a step leaves of the evidence about features and s
    variance: float = fields.number(1.0, above=0)  # Of the features' weights, before any evidence
    # What is left of a chosen item's own counts after a step
    decay_selected: float = fields.fraction(0.2)
    # What is left of any other item's own counts after a step
    decay_rest: float = fields.fraction(0.999)
    # Share of a batch that is drawn uniformly from all items, so that what is solved is asked again
    uniform_share: float = fields.fraction(0.0)


@chex.dataclass(frozen=True)
class InformedState(beta.BetaState):
    """Counts of every item, what the features are known to tell, and how far that can be trusted."""

    feature_ID: Array  # float32, uncorrelated, of variance 1; the last one is 1
    weights: logistic.Weights
    likelihood_K: Array  # float32, log-likelihood of past answers under each of STRENGTH_K, decayed


def selector(options: InformedOptions) -> base.Sampler:
    """Returns the selector; `init` takes a vector for each item, and known pass rates."""
    decays = {"decay_selected": options.decay_selected, "decay_rest": options.decay_rest}

    def init(
        num_items: int, *, features: Array | None = None, pass_rate: Array | None = None
    ) -> InformedState:
        if features is None:  # nothing tells one item from another
            features = np.zeros((num_items, 1), np.float32)
        per_item.check_vectors("informed", "features", features, num_items)
        return beta.begin(
            InformedState,
            options,
            num_items,
            pass_rate=pass_rate,
            feature_ID=components(np.asarray(features, np.float32), options.dimensions),
            weights=logistic.prior(options.dimensions + 1, options.variance),
            likelihood_K=np.zeros(len(STRENGTH_K), np.float32),
        )

    def propose(state: InformedState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        p_I = beta.draw_any(keys.draw, *posterior(state))
        num_uniform = ranking.share_of(options.uniform_share, num_prompts)
        score_I = ranking.mix_uniform(beta.info_gain(p_I), keys.uniform, num_uniform)
        return ranking.best(score_I, keys.ties, num_prompts, options.num_rollouts, p_I)

    def update(state: InformedState, feedback: types.Feedback) -> InformedState:
        index_M, right_M, trials_M = feedback.index_M, feedback.successes_M, feedback.trials_M
        new_K = likelihoods(state, index_M, right_M, trials_M)
        weights = logistic.forget(state.weights, decay=options.memory, variance=options.variance)
        state = state.replace(
            weights=logistic.observe(weights, state.feature_ID[index_M], right_M, trials_M),
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
    mean = logistic.predict(state.weights, state.feature_ID[index])
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
    """Returns the log-likelihood of a step's answers under each strength, given what was known before."""
    mean_M, strength_K1 = prior_mean(state, index_M), jnp.asarray(STRENGTH_K)[:, None]
    a_KM = state.alpha_I[index_M] + strength_K1 * mean_M
    b_KM = state.beta_I[index_M] + strength_K1 * (1 - mean_M)
    log_beta = jax.scipy.special.betaln
    log_KM = log_beta(a_KM + right_M, b_KM + trials_M - right_M) - log_beta(a_KM, b_KM)
    return jnp.sum(log_KM, axis=1)


def components(feature_IE: np.ndarray, dimensions: int) -> np.ndarray:
    """Returns the first principal components of the features, with variance 1, and a column of ones.

    A direction in which items do not differ, but for rounding, is all 0: it would otherwise count like any
    other. So is one that the features do not have. E features of the user's or of the policy.
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
