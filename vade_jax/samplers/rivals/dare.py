"""DARE's draw (arXiv 2605.09188): prompts in proportion to a narrow Beta density of their difficulty.

With d = 1 - p the estimated difficulty of a prompt, a batch is a draw without replacement in proportion to
the density of

    Beta(1 + kappa / 2, 1 + kappa / 2)  at d,  that is to  (d (1 - d))^(kappa / 2)

From the authors' code; kappa = 100 there. That density leaves no tail: against d = 0.5, a prompt of d = 0.4
weighs 0.13, and one of d = 0.3 only 0.00016. Easy and hard prompts, for which the paper has rules of their
own, are then hardly ever drawn; `concentration=5` draws them. By the paper's own finding, the choice of
prompts alone barely moves the final score.

Departures from the code:
- The estimate of p. DARE keeps old answers with their log-probs and weighs each by its importance ratio to
  the current policy. A selector here gets no log-probs. Where the weights are worth fewer than two answers,
  DARE takes the plain mean; nearest to that are decayed counts, p = (right + 1) / (right + wrong + 2).
  `decay` stands for the first-in-first-out queue: with 0.5 the counts are worth two visits at most.
- The +1 is ours. With a plain mean a prompt whose answers were all wrong once would have weight 0 for good.
- A prompt that was never visited has p = 1/2, the best there is: it comes first, beside those that are known
  to be there. DARE predicts its p from a set of reference prompts.
- The tiers are left out: 4 answers and a punishment of length where d < 0.3, 16 answers and hints where
  d > 0.8. A selector gives no hints and makes no rewards, and answers alone would not be DARE.
"""

import dataclasses

import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, ranking
from vade_jax.samplers.rivals import counting
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class DareOptions(base.Options):
    # kappa, how narrow the density is around 1/2; 0: an even draw
    concentration: float = fields.number(100.0, at_least=0)
    # What is left of an item's counts after it is visited; items that are not visited keep theirs
    decay: float = fields.fraction(0.5)


def selector(options: DareOptions) -> base.Sampler:
    def propose(state: beta.BetaState, keys: rng.SelectionKeys, num_prompts: int) -> types.Proposal:
        p_I = beta.posterior_mean(state.alpha_I, state.beta_I)
        log_weight_I = log_density(1 - p_I, options.concentration)
        return ranking.drawn(log_weight_I, keys, num_prompts, options.num_rollouts, p_I)

    return counting.selector(propose, decay=options.decay)


SPEC = base.Spec("dare", DareOptions, selector)


def log_density(difficulty_I: Array, concentration: float) -> Array:
    """Returns the log density of Beta(1 + kappa/2, 1 + kappa/2), against that at 1/2."""
    return concentration / 2 * jnp.log(4 * difficulty_I * (1 - difficulty_I))
