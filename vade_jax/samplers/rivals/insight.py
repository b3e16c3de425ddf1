"""InSight (arXiv 2603.01907): chooses the prompts whose answers tell most about their own pass rate.

Every item has a Beta posterior of its pass rate p, as in MoPPS. Its score is the product of

    w = m (1 - m) exp(-eta (m - mu)^2), m = E[p]: medium difficulty, and hard rather than easy
    I = H(p) - E[H(p | K answers)]: the information that K answers are expected to give about p, in nats

and the B largest scores in a random pool of candidates are chosen. Nothing is drawn from the posterior.

The paper leaves two things open: how candidates change from step to step (here every step draws a new pool),
and whether prompts have pass rates before step 1 (here none has). Its text and a table have mu = 0.3, one
line of the appendix has 3.0.

As published, without decay, I falls quickly with the number of answers. Every unseen prompt then comes before
every seen one, so the first epoch visits all items, and later the score mostly counts visits. With `decay`
below 1, difficulty matters more.

Departures from the paper: I is computed in another, equal form (see `information`), and ties are broken at
random.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from scipy.special import comb

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, ranking
from vade_jax.samplers.rivals import counting
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class InsightOptions(base.Options):
    """The hyperparameters of InSight, as in its experiments; K is `num_rollouts`."""

    target: float = fields.fraction(0.3)  # mu, the preferred pass rate
    sharpness: float = fields.number(3.0, at_least=0)  # eta, how strongly `target` is preferred
    # What is left of an item's counts after it is visited; items that are not visited keep theirs
    decay: float = fields.fraction(1.0)
    # Size of the pool of candidates, as a multiple of the batch
    candidates: float = fields.number(16, at_least=1)


def selector(options: InsightOptions) -> base.Sampler:
    def propose(state: beta.BetaState, keys: rng.SelectionKeys, num_prompts: int) -> types.Proposal:
        size = min(ranking.share_of(options.candidates, num_prompts), len(state.alpha_I))
        # All scores are 0 except NaN, so the pool is random, and has NaN only if there is nothing else.
        candidate_C = ranking.top_b(0 * (state.alpha_I + state.beta_I), keys.draw, size)
        alpha_C, beta_C = state.alpha_I[candidate_C], state.beta_I[candidate_C]
        mean_C = beta.posterior_mean(alpha_C, beta_C)
        weight_C = difficulty(mean_C, options.target, options.sharpness)
        score_C = weight_C * information(alpha_C, beta_C, options.num_rollouts)
        best = ranking.best(score_C, keys.ties, num_prompts, options.num_rollouts, mean_C)
        return best.replace(index_M=candidate_C[best.index_M])

    return counting.selector(propose, decay=options.decay)


SPEC = base.Spec("insight", InsightOptions, selector)


def difficulty(mean_C: Array, target: float, sharpness: float) -> Array:
    """Returns w = m (1 - m) exp(-eta (m - mu)^2)."""
    return mean_C * (1 - mean_C) * jnp.exp(-sharpness * (mean_C - target) ** 2)


def information(alpha_C: Array, beta_C: Array, num_rollouts: int) -> jax.Array:
    """Returns the mutual information of the pass rate and K answers, in nats.

    The paper has H(p) - E[H(p | s)], s the number of right answers, which takes the entropies of K + 2
    Beta distributions. Mutual information is symmetric, so H(answers) - E[H(answers | p)] is the same.
    Both need the chance q_s of one sequence with s right answers. Besides that, the second needs only

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
    log_ways_S = np.log(comb(num_rollouts, np.arange(num_rollouts + 1))).astype(np.float32)
    of_answers_C = -jnp.sum(jnp.exp(log_CS + log_ways_S) * log_CS, axis=1)
    mean_C = a_C / total_C
    of_one_C = digamma(total_C + 1) - mean_C * digamma(a_C + 1) - (1 - mean_C) * digamma(b_C + 1)
    return of_answers_C - num_rollouts * of_one_C
