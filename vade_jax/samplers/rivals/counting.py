"""Rivals that count answers: MoPPS, MaPP, InSight, CurES and DARE score one Beta posterior in five ways.

The posterior of an item's pass rate p is Beta(alpha + 1, beta + 1), with alpha right and beta wrong answers.
A visit leaves `decay` of an item's earlier counts, so of the distance to the prior, Beta(1, 1). An item that
is not visited keeps its counts. So does one without valid answers, which the papers do not discuss.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, per_item, ranking
from vade_jax.types import Array


def counting(
    options: beta.CountingOptions,
    propose: Callable[[beta.BetaState, jax.Array, int], types.Proposal],
    *,
    decay: float,
) -> base.Sampler:
    """Returns a selector that proposes by the counts alone."""

    def update(state: beta.BetaState, feedback: types.Feedback) -> beta.BetaState:
        return beta.counted(state, feedback, decay_selected=decay, decay_rest=1.0)

    init = functools.partial(beta.begin, beta.BetaState, options)
    return base.compiled(init, propose, update, believe=beta.believe, needs=beta.NEEDS)


# ------------------------------------------------------------------------------ MoPPS
@dataclasses.dataclass(frozen=True)
class MoppsOptions(beta.CountingOptions):
    # lambda (the paper: 1 for mathematics, 0.5 for countdown and geometry)
    decay: float = fields.fraction(1.0)
    # Size of the pool of candidates, as a multiple of the batch (the code: 16 or 8)
    candidates: float = fields.number(16, at_least=1)
    target: float = fields.fraction(0.5)  # gamma*, the preferred pass rate
    # Seed of the order of the passes, as the code's data loader has one; draws use the keys of the run
    seed: int = fields.seed()


@chex.dataclass(frozen=True)
class MoppsState(beta.BetaState):
    """Counts, and the passes over the candidates."""

    passes_I: jax.Array = per_item.starts(0)  # how often the item has been a candidate
    step: jax.Array = per_item.starts(0)


def mopps(options: MoppsOptions) -> base.Sampler:
    """Returns MoPPS (arXiv 2507.04632): Thompson draws for a pool of candidates; those nearest to 1/2 win.

    The candidates of a step are the next items of a shuffled pass over the data, so each item is a candidate
    once in every pass.

    Departures from Algorithm 1 and its public code:
    - A pool that crosses the end of a pass takes items of the next one; the code's loader drops the rest.
    - The prior is Beta(1, 1), as in the paper's runs. The code's other rule of selection, random draws within
      a band of pass rates, is left out.
    """

    def pool(state: MoppsState, num_prompts: int) -> jax.Array:
        """Returns the candidates, the same in `propose` and in the `update` that follows.

        `update` counts the candidates, but a proposal does not list them. So `update` draws them again,
        with a key that depends only on the selector's seed and step.
        """
        size = min(ranking.share_of(options.candidates, num_prompts), len(state.passes_I))
        key = rng.own_key(options.seed, state.step)
        return ranking.top_b(ranking.least_visited(state.passes_I), key, size)

    def propose(state: MoppsState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        # Sorted, so that the reads below go through memory in order.
        candidate_C = jnp.sort(pool(state, num_prompts))
        p_C = beta.draw(keys.draw, state.alpha_I[candidate_C], state.beta_I[candidate_C])
        score_C = -jnp.abs(p_C - options.target)
        best = ranking.best(score_C, keys.ties, num_prompts, options.num_rollouts, p_C)
        return best.replace(index_M=candidate_C[best.index_M])

    def update(state: MoppsState, feedback: types.Feedback) -> MoppsState:
        candidate_C = pool(state, len(feedback.index_M))
        state = beta.counted(state, feedback, decay_selected=options.decay, decay_rest=1.0)
        passes_I = state.passes_I.at[candidate_C].add(1)
        return state.replace(passes_I=passes_I, step=state.step + 1)

    init = functools.partial(beta.begin, MoppsState, options)
    return base.compiled(init, propose, update, believe=beta.believe, needs=beta.NEEDS)


MOPPS = base.Spec("mopps", MoppsOptions, mopps)


# ------------------------------------------------------------------------------ MaPP
@dataclasses.dataclass(frozen=True)
class MappOptions(beta.CountingOptions):
    decay: float = fields.fraction(0.5)  # lambda


def mapp(options: MappOptions) -> base.Sampler:
    """Returns MaPP's selection (arXiv 2609.34990): a draw by the chance of a mixed group.

    The weight of a prompt is

        V = E[1 - p^G - (1-p)^G] = 1 - B(a+G, b) / B(a, b) - B(a, b+G) / B(a, b)

    This is only half of the paper. The other half, "advantage denoising", computes advantages from the same
    posterior; by the paper's own table it brings most of the gain.

    Departure from the paper: the draw is without replacement and from all items. The paper does not say
    whether items are replaced, and its experiments draw from 8 B random candidates.
    """
    G = options.num_rollouts

    def propose(state: beta.BetaState, key: jax.Array, num_prompts: int) -> types.Proposal:
        mixed_I = beta.prob_mixed(state.alpha_I, state.beta_I, G)
        return ranking.drawn(jnp.log(mixed_I), rng.selection_keys(key), num_prompts, G)

    return counting(options, propose, decay=options.decay)


MAPP = base.Spec("mapp", MappOptions, mapp)


# ------------------------------------------------------------------------------ CurES
@dataclasses.dataclass(frozen=True)
class CuresOptions(beta.CountingOptions):
    temperature: float = fields.number(0.1, above=0)  # tau, temperature of the weighted draw


def cures(options: CuresOptions) -> base.Sampler:
    """Returns CurES's draw (arXiv 2510.01037): by the standard deviation of one answer.

    With p the posterior mean, B prompts are drawn without replacement with weights exp(sqrt(p (1 - p)) /
    tau): the paper bounds the gain from a prompt in a step by a multiple of sqrt(p (1 - p)) and adds an
    entropy term, whose weight is tau.

    We know the theory second-hand, and have read the public code. In the code, tau is (number of accepted
    answers + 1) / 0.01, which is at least 100: the largest weight is 1.005 times the smallest, so the draw is
    practically uniform. The tau of the paper's runs is not known; the default 0.1 is ours.

    Departures from the code:
    - The code cuts the data into shards of 10 steps. Each shard starts its own counts, with 4 answers to
      every prompt. Here counts are kept for the whole run, and can be old.
    - The other half of CurES is left out: it splits the answers in proportion to the standard deviation of
      each prompt's gradient, which the paper measures.
    """

    def propose(state: beta.BetaState, key: jax.Array, num_prompts: int) -> types.Proposal:
        p_I = beta.posterior_mean(state.alpha_I, state.beta_I)
        log_weight_I = jnp.sqrt(beta.outcome_variance(p_I)) / options.temperature
        keys = rng.selection_keys(key)
        return ranking.drawn(log_weight_I, keys, num_prompts, options.num_rollouts, p_I)

    return counting(options, propose, decay=1.0)


CURES = base.Spec("cures", CuresOptions, cures)


# ------------------------------------------------------------------------------ DARE
@dataclasses.dataclass(frozen=True)
class DareOptions(beta.CountingOptions):
    # kappa, how narrow the density is around 1/2; 0: an even draw
    concentration: float = fields.number(100.0, at_least=0)
    decay: float = fields.fraction(0.5)


def dare(options: DareOptions) -> base.Sampler:
    """Returns DARE's draw (arXiv 2605.09188): in proportion to a narrow Beta density of the difficulty.

    With d = 1 - p the difficulty of a prompt, p its posterior mean, a batch is a draw without replacement in
    proportion to the density of Beta(1 + kappa/2, 1 + kappa/2) at d, that is to (d (1 - d))^(kappa/2).

    From the authors' code; kappa = 100 there. That density leaves no tail: against d = 0.5, a prompt of
    d = 0.4 weighs 0.13, and one of d = 0.3 only 0.00016. Easy and hard prompts, for which the paper has
    separate rules, are then hardly ever drawn; `concentration=5` draws them. By the paper's own finding,
    the choice of prompts alone barely moves the final score.

    Departures from the code:
    - The estimate of p. DARE keeps old answers with their log-probs and weighs each by its importance ratio
      to the current policy. A selector here gets no log-probs. Where the weights amount to fewer than two
      answers, DARE takes the plain mean; decayed counts come closest to that. `decay` stands for the
      first-in-first-out queue: with 0.5 the counts are worth two visits at most.
    - The +1 is ours. With a plain mean a prompt with one group of only wrong answers would never be drawn
      again.
    - A prompt that was never visited has p = 1/2, the best value, so it comes first, with those known to
      be there. DARE predicts its p from a set of reference prompts.
    - The tiers are left out: 4 answers and a punishment of length where d < 0.3, 16 answers and hints where
      d > 0.8. A selector can neither give hints nor change rewards, and varying only the answers would
      not be DARE.
    """

    def propose(state: beta.BetaState, key: jax.Array, num_prompts: int) -> types.Proposal:
        p_I = beta.posterior_mean(state.alpha_I, state.beta_I)
        difficulty_I = 1 - p_I
        # The log density, against that at 1/2
        log_weight_I = options.concentration / 2 * jnp.log(4 * difficulty_I * (1 - difficulty_I))
        keys = rng.selection_keys(key)
        return ranking.drawn(log_weight_I, keys, num_prompts, options.num_rollouts, p_I)

    return counting(options, propose, decay=options.decay)


DARE = base.Spec("dare", DareOptions, dare)


# ------------------------------------------------------------------------------ InSight
@dataclasses.dataclass(frozen=True)
class InsightOptions(beta.CountingOptions):
    """The hyperparameters of InSight, as in its experiments; K is `num_rollouts`."""

    target: float = fields.fraction(0.3)  # mu, the preferred pass rate
    sharpness: float = fields.number(3.0, at_least=0)  # eta, how strongly `target` is preferred
    decay: float = fields.fraction(1.0)
    # Size of the pool of candidates, as a multiple of the batch
    candidates: float = fields.number(16, at_least=1)


def insight(options: InsightOptions) -> base.Sampler:
    """Returns InSight (arXiv 2603.01907): prompts with the most informative answers.

    The score of an item is the product of

        w = m (1 - m) exp(-eta (m - mu)^2), m = E[p]: medium difficulty, and hard rather than easy
        I = H(p) - E[H(p | K answers)]: the information that K answers are expected to give about p, in nats

    and the B largest scores in a random pool of candidates are chosen. Nothing is drawn from the posterior.

    The paper leaves two things open: how candidates change from step to step (here every step draws a new
    pool), and whether prompts have pass rates before step 1 (here none has). Its text and a table have
    mu = 0.3, one line of the appendix has 3.0.

    As published, without decay, I falls quickly with the number of answers. Every unseen prompt then comes
    before every seen one, so the first epoch visits all items, and later the score mostly counts visits. With
    `decay` below 1, difficulty matters more.

    Departures from the paper: I is computed in another, equal form (see `information`), and ties are broken
    at random.
    """

    def propose(state: beta.BetaState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        size = min(ranking.share_of(options.candidates, num_prompts), len(state.alpha_I))
        # All scores are 0 except NaN, so the pool is random, and has NaN only if there is nothing else.
        candidate_C = ranking.top_b(0 * (state.alpha_I + state.beta_I), keys.draw, size)
        alpha_C, beta_C = state.alpha_I[candidate_C], state.beta_I[candidate_C]
        mean_C = beta.posterior_mean(alpha_C, beta_C)
        distance_C = mean_C - options.target
        weight_C = mean_C * (1 - mean_C) * jnp.exp(-options.sharpness * distance_C**2)
        score_C = weight_C * information(alpha_C, beta_C, options.num_rollouts)
        best = ranking.best(score_C, keys.ties, num_prompts, options.num_rollouts, mean_C)
        return best.replace(index_M=candidate_C[best.index_M])

    return counting(options, propose, decay=options.decay)


INSIGHT = base.Spec("insight", InsightOptions, insight)


def information(alpha_C: Array, beta_C: Array, num_rollouts: int) -> jax.Array:
    """Returns the mutual information of the pass rate and K answers, in nats.

    The paper has H(p) - E[H(p | s)], s the number of right answers, which takes the entropies of K + 2
    Beta distributions. Mutual information is symmetric, so H(answers) - E[H(answers | p)] is the same.
    Both need the chance q_s of one sequence with s right answers. The second also needs only

        E[H(answers | p)] = K (psi(a+b+1) - m psi(a+1) - (1-m) psi(b+1)), m = a / (a+b),

    with a = alpha + 1, b = beta + 1: three digammas an item instead of some thirty.
    """
    a_C, b_C = alpha_C + 1, beta_C + 1
    total_C, k_K = a_C + b_C, jnp.arange(num_rollouts)
    # Factors are divided by the total, so that for large counts the logarithms stay small.
    right_CS, wrong_CS, all_CS = (
        jnp.pad(jnp.cumsum(jnp.log((x_C[:, None] + k_K) / total_C[:, None]), 1), ((0, 0), (1, 0)))
        for x_C in (a_C, b_C, total_C)
    )
    # log q_s = log B(a+s, b+K-s) - log B(a, b); K over s sequences have that chance.
    log_CS = right_CS + wrong_CS[:, ::-1] - all_CS[:, -1:]
    ways_S = [float(math.comb(num_rollouts, s)) for s in range(num_rollouts + 1)]
    log_ways_S = np.log(ways_S).astype(np.float32)
    of_answers_C = -jnp.sum(jnp.exp(log_CS + log_ways_S) * log_CS, axis=1)
    mean_C = a_C / total_C
    of_one_C = digamma(total_C + 1) - mean_C * digamma(a_C + 1) - (1 - mean_C) * digamma(b_C + 1)
    return of_answers_C - num_rollouts * of_one_C
