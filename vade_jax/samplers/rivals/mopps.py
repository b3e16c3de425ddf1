"""MoPPS (arXiv 2507.04632): Thompson draws for a pool of candidates; those nearest to 1/2 win.

The candidates of a step are the next items of a shuffled pass over the data, so each item is a candidate
once in every pass.

Departures from Algorithm 1 and its public code:
- A pool that crosses the end of a pass takes items of the next pass; the code's loader drops the remainder.
- A prompt without valid answers keeps its posterior.
- The prior is Beta(1, 1), as in the paper's runs, and the code's other rule of selection is left out: random
  draws within a band of pass rates.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, per_item, ranking


@dataclasses.dataclass(frozen=True)
class MoppsOptions(base.Options):
    """The hyperparameters of MoPPS, as in its public code."""

    # lambda, what is left of the distance to the prior, Beta(1, 1), after an item is visited (the paper: 1
    # for mathematics, 0.5 for countdown and geometry); items that are not visited keep theirs
    decay: float = fields.fraction(1.0)
    # Size of the pool of candidates, as a multiple of the batch (the code: 16 or 8)
    candidates: float = fields.number(16, at_least=1)
    target: float = fields.fraction(0.5)  # gamma*, the preferred pass rate
    # Seed of the order of the passes, as the code's data loader has one; draws use the keys of the run
    seed: int = fields.seed()


@chex.dataclass(frozen=True)
class MoppsState(beta.BetaState):
    """Counts, and the passes over the candidates."""

    passes_I: jax.Array  # int32, how often the item has been a candidate
    step: jax.Array  # int32


def selector(options: MoppsOptions) -> base.Sampler:
    """Returns MoPPS, Algorithm 1 of arXiv 2507.04632."""

    def init(num_items: int) -> MoppsState:
        first = {"alpha_I": 0.0, "beta_I": 0.0, "passes_I": 0, "step": 0}
        return MoppsState(**per_item.filled(num_items, **first))

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

    return base.compiled(init, propose, update, believe=beta.believe)


SPEC = base.Spec("mopps", MoppsOptions, selector)
