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
- The other half of CurES splits the answers in proportion to the standard deviation of each prompt's
  gradient, which the paper measures. `rollouts="sigma"` does so with sqrt(p (1 - p)) in its place, as if the
  gradients of all answers had the same size.
- p is never 0 or 1 here, so every prompt can get answers. In the code, a prompt with 0/4 or 4/4 gets none.
"""

import dataclasses

import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, ranking
from vade_jax.samplers.rivals import counting, knapsack
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class CuresOptions(base.Options):
    """The hyperparameters of CurES; `num_rollouts` is the mean number of answers."""

    temperature: float = fields.number(0.1, above=0)  # tau, temperature of the weighted draw
    # "equal": G answers to every prompt. "sigma": B G answers in proportion to sqrt(p (1 - p)), from
    # `min_rollouts` to `max_rollouts` each
    rollouts: str = fields.choice("equal", "sigma")
    min_rollouts: int = 2  # Fewest answers to a prompt with rollouts="sigma"
    max_rollouts: int = 16  # Most answers to a prompt with rollouts="sigma"

    def __post_init__(self):
        super().__post_init__()
        if self.rollouts == "sigma":
            usual = self.num_rollouts
            fields.Interval(at_least=2, at_most=usual).check("min_rollouts", self.min_rollouts)
            fields.Interval(at_least=usual).check("max_rollouts", self.max_rollouts)


def selector(options: CuresOptions) -> base.Sampler:
    """Returns CurES's choice of prompts and, with `rollouts="sigma"`, its split of the answers."""
    uneven = options.rollouts == "sigma"

    def propose(state: beta.BetaState, keys: rng.SelectionKeys, num_prompts: int) -> types.Proposal:
        p_I = beta.posterior_mean(state.alpha_I, state.beta_I)
        sigma_I = jnp.sqrt(beta.outcome_variance(p_I))
        log_weight_I = sigma_I / options.temperature
        proposal = ranking.drawn(log_weight_I, keys, num_prompts, options.num_rollouts, p_I)
        if not uneven:
            return proposal
        return proposal.replace(num_rollouts_M=split(options, sigma_I[proposal.index_M]))

    return counting.selector(propose, decay=1.0, needs=base.Needs(uneven=uneven))


SPEC = base.Spec("cures", CuresOptions, selector)


def split(options: CuresOptions, sigma_M: Array) -> Array:
    """Returns int32 num_rollouts_M in proportion to `sigma_M`, within the bounds; their sum is B G.

    The rounding is Sainte-Lague's: the next answer goes to the prompt with the largest sigma / (n + 1/2),
    where n is the number of answers that it has.
    """
    n_G = jnp.arange(options.max_rollouts)
    gain_MG = sigma_M[:, None] / (n_G + 0.5)
    low_M = jnp.full(len(sigma_M), options.min_rollouts)
    order_MG = jnp.full(gain_MG.shape, knapsack.WITHIN)  # one class: only the gain decides
    return knapsack.fill(gain_MG, low_M, order_MG, options.num_rollouts * len(sigma_M))
