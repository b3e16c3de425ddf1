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

import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, ranking


@dataclasses.dataclass(frozen=True)
class MappOptions(base.Options):
    """The hyperparameters of MaPP's selection."""

    # lambda, what is left of the distance to the prior, Beta(1, 1), after an item is visited
    decay: float = fields.fraction(0.5)


def selector(options: MappOptions) -> base.Sampler:
    """Returns MaPP's selection."""

    def propose(state: beta.BetaState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        mixed_I = beta.prob_mixed(state.alpha_I, state.beta_I, options.num_rollouts)
        score_I = ranking.gumbel_scores(jnp.log(mixed_I), keys.draw)
        index_M = ranking.top_b(score_I, keys.ties, num_prompts)
        return ranking.same_num_rollouts(index_M, options.num_rollouts)

    def update(state: beta.BetaState, feedback: types.Feedback) -> beta.BetaState:
        # These counts leave out the prior's 1, so the decay acts on the distance to the prior.
        return beta.counted(state, feedback, decay_selected=options.decay, decay_rest=1.0)

    return base.compiled(beta.no_counts, propose, update, believe=beta.believe)


SPEC = base.Spec("mapp", MappOptions, selector)
