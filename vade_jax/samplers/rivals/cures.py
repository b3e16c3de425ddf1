"""CurES (arXiv 2510.01037): prompts are drawn by the standard deviation of one answer.

The counts of right and wrong answers to an item give p = (alpha + 1) / (alpha + beta + 2). B prompts are
drawn without replacement with weights exp(sqrt(p (1 - p)) / tau): the paper bounds the gain from a prompt
in a step by a multiple of sqrt(p (1 - p)) and adds an entropy term, whose weight is tau.

We know the theory second-hand, and have read the public code. In the code, tau is (number of accepted
answers + 1) / 0.01, which is at least 100: the largest weight is 1.005 times the smallest, so the draw is
practically uniform. The tau of the paper's runs is not known; the default 0.1 is ours.

Departures from the code:
- The code cuts the data into shards of 10 steps. Each shard starts its own counts, with 4 answers to every
  prompt. Here counts are kept for the whole run, and can be old.
- The other half of CurES is left out: it splits the answers in proportion to the standard deviation of each
  prompt's gradient, which the paper measures.
"""

import dataclasses

import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, ranking
from vade_jax.samplers.rivals import counting


@dataclasses.dataclass(frozen=True)
class CuresOptions(base.Options):
    temperature: float = fields.number(0.1, above=0)  # tau, temperature of the weighted draw


def selector(options: CuresOptions) -> base.Sampler:
    def propose(state: beta.BetaState, keys: rng.SelectionKeys, num_prompts: int) -> types.Proposal:
        p_I = beta.posterior_mean(state.alpha_I, state.beta_I)
        log_weight_I = jnp.sqrt(beta.outcome_variance(p_I)) / options.temperature
        return ranking.drawn(log_weight_I, keys, num_prompts, options.num_rollouts, p_I)

    return counting.selector(propose, decay=1.0)


SPEC = base.Spec("cures", CuresOptions, selector)
