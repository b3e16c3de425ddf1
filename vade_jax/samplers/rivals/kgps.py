"""After KGPS (arXiv 2607.27610): a Gaussian posterior of every logit pass rate, scored by E[p (1-p)].

This is not the paper's program. We have read its abstract, and a few lines about it in another paper (arXiv
2609.38018). From the abstract come a Gaussian posterior of the logit, a Kalman step, process noise that grows
with the size of the policy update, and a utility averaged over the posterior. From the other paper come the
walk without a drift, a first visit of all prompts in steps that train, and E[p (1-p)] by 5-point
Gauss-Hermite quadrature.

The posterior is that of `kalman`, with the same noise for every item. The choice differs: nothing is drawn,
and the B largest averages win. The averaging explores. For a logit far from 0, the average of p (1-p) grows
with the variance, so prompts that were solved or failed come back as their variance grows.

Departures:
- A selector does not know the size of the policy update, because the next prompts are chosen while the
  policy learns. Instead, the scale of the noise is learned from the counts by evidence, as in `kalman`.
- Counts are treated as binomial (Laplace). The second-hand account uses the logit of the observed rate, with
  a plug-in noise that is infinite for groups all right or all wrong.
- The top B, the prior and the noise are our own choices.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, types
from vade_jax.samplers import base, beta, gaussian, ranking
from vade_jax.samplers.rivals import kalman

# Points of the quadrature. Its error is within 1 % up to a logit variance of 2, 5 % at 4, and 25 % at 10.
NUM_POINTS = 5


@dataclasses.dataclass(frozen=True)
class KgpsOptions(kalman.WalkOptions):
    """The hyperparameters of KGPS: those of the walk, with other defaults."""

    # Variance that a visit adds; 0: the walk is the same for every item
    noise_selected: float = fields.number(0.0, at_least=0)
    noise_rest: float = fields.number(0.01, at_least=0)  # Variance that a step adds to every item


@chex.dataclass(frozen=True)
class KgpsState(kalman.KalmanState):
    """The state of `kalman`, and the items that the warm-up has not visited."""

    unseen_I: jax.Array  # bool; every item is visited once before the posterior chooses


def selector(options: KgpsOptions) -> base.Sampler:
    """Returns the selector: it chooses the B prompts with the largest E[p (1-p)]."""

    def init(num_items: int) -> KgpsState:
        return KgpsState(**kalman.begin(options, num_items), unseen_I=jnp.ones(num_items, bool))

    def propose(state: KgpsState, key: jax.Array, num_prompts: int) -> types.Proposal:
        score_I = gaussian.expectation(beta.outcome_variance, state.mean_I, state.var_I, NUM_POINTS)
        score_I = jnp.where(state.unseen_I, jnp.inf, score_I)
        return ranking.best(score_I, key, num_prompts, options.num_rollouts)

    def update(state: KgpsState, feedback: types.Feedback) -> KgpsState:
        unseen_I = state.unseen_I.at[feedback.index_M].set(False)
        return kalman.walked(options, state, feedback).replace(unseen_I=unseen_I)

    return base.compiled(init, propose, update, believe=gaussian.believe)


SPEC = base.Spec("kgps", KgpsOptions, selector)
