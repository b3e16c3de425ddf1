"""InSight (arXiv 2603.01907): the prompts whose answers say the most about their own pass rate.

Of every item a Beta posterior of the pass rate p, as MoPPS's. An item's score is the product of

    w = m (1 - m) exp(-eta (m - mu)^2), m = E[p]: middling difficulty, rather hard than easy
    I = H(p) - E[H(p | K answers)]: what K answers are expected to tell of p, in nats

and the B largest of a random pool of candidates are taken: nothing is drawn from the posterior.

What the paper leaves open. How candidates change from step to step: here every step draws others. Whether
prompts had pass rates before step 1: here none has. As published, without decay, I falls with the number of
answers so fast that every prompt never seen comes before every prompt seen, so a pass over all items comes
first, and later the score mostly counts visits; `decay` below 1 gives the difficulty more say. The text and
a table have mu = 0.3, one line of the appendix 3.0.
Departures: I is computed in another, equal form (see `information`); ties are broken at random.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import digamma
from scipy.special import comb

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class InsightOptions(base.Options):
    """The hyperparameters of InSight, as in its experiments; K is `num_rollouts`."""

    target: float = fields.fraction(0.3)  # mu, the pass rate that `sharpness` pulls to
    sharpness: float = fields.number(3.0, at_least=0)  # eta
    # What is left of an item's counts when it is visited; items not visited keep theirs.
    decay: float = fields.fraction(1.0)
    candidates: float = fields.number(16, at_least=1)  # pool over batch


def selector(options: InsightOptions) -> base.Sampler:
    """Returns InSight."""

    def propose(state: beta.BetaState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys, num_items = rng.selection_keys(key), len(state.alpha_I)
        size = min(base.share_of(options.candidates, num_prompts), num_items)
        # All alike but for NaN, which no pool should hold while there are numbers.
        candidate_C = base.top_b(0 * (state.alpha_I + state.beta_I), keys.draw, size)
        alpha_C, beta_C = state.alpha_I[candidate_C], state.beta_I[candidate_C]
        mean_C = beta.posterior_mean(alpha_C, beta_C)
        weight_C = difficulty(mean_C, options.target, options.sharpness)
        score_C = weight_C * information(alpha_C, beta_C, options.num_rollouts)
        chosen_M = base.top_b(score_C, keys.ties, num_prompts)
        proposal = base.same_num_rollouts(candidate_C[chosen_M], options.num_rollouts)
        return proposal.replace(p_M=mean_C[chosen_M])

    def update(state: beta.BetaState, feedback: types.Feedback) -> beta.BetaState:
        return beta.counted(state, feedback, decay_selected=options.decay, decay_rest=1.0)

    return base.compiled(beta.no_counts, propose, update, believe=beta.believe)


SPEC = base.Spec("insight", InsightOptions, selector)


# ------------------------------------------------------------------------------ score
def difficulty(mean_C: Array, target: float, sharpness: float) -> Array:
    """Returns w = m (1 - m) exp(-eta (m - mu)^2)."""
    return mean_C * (1 - mean_C) * jnp.exp(-sharpness * (mean_C - target) ** 2)


def information(alpha_C: Array, beta_C: Array, num_rollouts: int) -> jax.Array:
    """Returns the mutual information of the pass rate and K answers, in nats.

    The paper has H(p) - E[H(p | s)], s the number of right answers, which takes the entropies of K + 2
    Beta distributions. The same information seen from the other side is H(answers) - E[H(answers | p)].
    Both need the chance q_s of one sequence with s right ones; the second has besides it only

        E[H(answers | p)] = K (psi(a+b+1) - m psi(a+1) - (1-m) psi(b+1)), m = a / (a+b),

    with a = alpha + 1, b = beta + 1: three digammas an item instead of some thirty.
    """
    a_C, b_C = alpha_C + 1, beta_C + 1
    total_C, k_K = a_C + b_C, jnp.arange(num_rollouts)
    # Over the total, so that large counts leave sums of small logarithms.
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
