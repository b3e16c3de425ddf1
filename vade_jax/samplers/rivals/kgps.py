"""After KGPS (arXiv 2607.27610): a Gaussian belief of every logit pass rate, scored by E[p (1-p)].

Not the paper's program: its abstract was read, and the few lines that another paper (arXiv 2609.38018)
has on it. The abstract has a Gaussian belief of the logit, a Kalman step, process noise that grows with
the size of the policy update, and a utility averaged over the belief. Second-hand are the walk without a
drift, a first pass over all prompts in steps that train, E[p (1-p)] by 5-point Gauss-Hermite quadrature.

The belief is `kalman`'s, with the same noise for every item. What differs is the choice: no draw, the B
largest averages. The averaging explores: far out on the logit, p (1-p) is larger on average the wider the
belief is, so that prompts solved or failed come back as their variance grows.

Departures. A selector does not know the size of the policy update: the next prompts are chosen while the
policy learns. In its place the noise grows with what the update did, as far as counts show it: its scale
is learned by evidence, as `kalman`'s. Counts are conditioned on as binomial (Laplace), where
the second-hand account has the logit of the observed rate, with a plug-in noise that is infinite for
groups all right or all wrong. The top B, the prior and the noise are own choices.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, types
from vade_jax.samplers import base, beta, gaussian
from vade_jax.samplers.rivals import kalman

# Of the quadrature: right within 1 % up to a variance of 2 of the logit, 5 % at 4, a quarter at 10.
NUM_POINTS = 5


@dataclasses.dataclass(frozen=True)
class KgpsOptions(kalman.WalkOptions):
    """The hyperparameters: those of the walk."""

    noise_selected: float = fields.number(0.0, at_least=0)  # the walk is the same for every item
    noise_rest: float = fields.number(0.01, at_least=0)


@chex.dataclass(frozen=True)
class KgpsState(kalman.KalmanState):
    """`kalman`'s, and what the warm-up is still to visit."""

    unseen_I: jax.Array  # bool; all are visited once before the belief chooses


def selector(options: KgpsOptions) -> base.Sampler:
    """Returns the selector: the B prompts of the largest expected information gain."""

    def init(num_items: int) -> KgpsState:
        begun = kalman.begin(options, num_items)
        return KgpsState(
            mean_I=begun.mean_I,
            var_I=begun.var_I,
            evidence_Q=begun.evidence_Q,
            unseen_I=jnp.ones(num_items, bool),
        )

    def propose(state: KgpsState, key: jax.Array, num_prompts: int) -> types.Proposal:
        score_I = gaussian.expectation(beta.outcome_variance, state.mean_I, state.var_I, NUM_POINTS)
        score_I = jnp.where(state.unseen_I, jnp.inf, score_I)
        index_M = base.top_b(score_I, key, num_prompts)
        return base.same_num_rollouts(index_M, options.num_rollouts)

    def update(state: KgpsState, feedback: types.Feedback) -> KgpsState:
        unseen_I = base.still_unseen(state.unseen_I, feedback)
        return kalman.walked(options, state, feedback).replace(unseen_I=unseen_I)

    return base.compiled(init, propose, update, believe=gaussian.believe)


SPEC = base.Spec("kgps", KgpsOptions, selector)
