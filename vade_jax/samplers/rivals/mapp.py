"""MaPP's selection (arXiv 2609.34990): prompts are drawn by the expected chance of a mixed group.

With a Beta posterior of every pass rate p, a prompt's weight is

    V = E[1 - p^G - (1-p)^G] = 1 - B(a+G, b) / B(a, b) - B(a, b+G) / B(a, b)

and a batch is a draw in proportion to V. The posterior is that of MoPPS: the counts of a visited item decay
towards the prior, all others stay. This is only half of the paper. The other half, "advantage denoising",
computes advantages from the same posterior; by the paper's own table it brings most of the gain.

Departures from the paper:
- The draw is without replacement and from all items. The paper does not say whether items are replaced, and
  its experiments draw from 8 B random candidates.
- A prompt without valid answers keeps its posterior.
"""

import dataclasses

import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, ranking
from vade_jax.samplers.rivals import counting


@dataclasses.dataclass(frozen=True)
class MappOptions(base.Options):
    # lambda, what is left of the distance to the prior, Beta(1, 1), after an item is visited
    decay: float = fields.fraction(0.5)


def selector(options: MappOptions) -> base.Sampler:
    G = options.num_rollouts

    def propose(state: beta.BetaState, keys: rng.SelectionKeys, num_prompts: int) -> types.Proposal:
        mixed_I = beta.prob_mixed(state.alpha_I, state.beta_I, G)
        return ranking.drawn(jnp.log(mixed_I), keys, num_prompts, G)

    return counting.selector(propose, decay=options.decay)


SPEC = base.Spec("mapp", MappOptions, selector)
