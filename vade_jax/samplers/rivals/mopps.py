"""MoPPS (arXiv 2507.04632): Thompson draws for a pool of candidates; those nearest to 1/2 win.

The candidates of a step are the next items of a shuffled pass over the data, so each item is a candidate
once in every pass.

Departures from Algorithm 1 and its public code:
- A pool that crosses the end of a pass takes items of the next pass; the code's loader drops the remainder.
- A prompt without valid answers keeps its posterior.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, per_item, ranking
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class MoppsOptions(base.Options):
    """The hyperparameters of MoPPS, as in its public code."""

    # lambda, what is left of the distance to the prior after an item is visited (the paper: 1 for
    # mathematics, 0.5 for countdown and geometry); items that are not visited keep theirs
    decay: float = fields.fraction(1.0)
    prior_alpha: float = fields.number(1.0, at_least=1)  # alpha_0 of the Beta prior
    prior_beta: float = fields.number(1.0, at_least=1)  # beta_0 of the Beta prior
    # Size of the pool of candidates, as a multiple of the batch (the code: 16 or 8)
    candidates: float = fields.number(16, at_least=1)
    # "topk": the draws nearest to `target`. "threshold": random draws within `band`, then those nearest
    # to it
    selection: str = fields.choice("topk", "threshold")
    target: float = fields.fraction(0.5)  # gamma*, the wanted pass rate with "topk"
    band: tuple[float, float] = (0.3, 0.7)  # Range of wanted pass rates with "threshold"
    # Seed of the order of the passes, as the code's data loader has one; draws use the keys of the run
    seed: int = fields.seed()

    def __post_init__(self):
        super().__post_init__()
        numbers = [x for x in self.band if isinstance(x, int | float)]
        if not len(numbers) == len(self.band) == 2 or not 0 <= numbers[0] <= numbers[1] <= 1:
            raise ValueError(f"band={self.band}: give two ascending pass rates from 0 to 1")


@chex.dataclass(frozen=True)
class MoppsState(beta.BetaState):
    """Counts that start from alpha_0 - 1 and beta_0 - 1, and the passes over the candidates."""

    passes_I: jax.Array  # int32, how often the item has been a candidate
    step: jax.Array  # int32


def selector(options: MoppsOptions) -> base.Sampler:
    """Returns MoPPS, Algorithm 1 of arXiv 2507.04632."""
    low, high = (options.target,) * 2 if options.selection == "topk" else options.band
    # Counts start from the prior. Beta(alpha + 1, beta + 1) adds the other 1.
    first_alpha, first_beta = options.prior_alpha - 1.0, options.prior_beta - 1.0

    def init(num_items: int) -> MoppsState:
        first = {"alpha_I": first_alpha, "beta_I": first_beta, "passes_I": 0, "step": 0}
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
        score_C = -distance(p_C, low, high)
        best = ranking.best(score_C, keys.ties, num_prompts, options.num_rollouts, p_C)
        return best.replace(index_M=candidate_C[best.index_M])

    def update(state: MoppsState, feedback: types.Feedback) -> MoppsState:
        candidate_C = pool(state, len(feedback.index_M))
        # Counts decay towards the prior, not towards 0, so the prior is subtracted first.
        alpha_I, beta_I = state.alpha_I - first_alpha, state.beta_I - first_beta
        state = state.replace(alpha_I=alpha_I, beta_I=beta_I)
        new = beta.counted(state, feedback, decay_selected=options.decay, decay_rest=1.0)
        return MoppsState(
            alpha_I=new.alpha_I + first_alpha,
            beta_I=new.beta_I + first_beta,
            passes_I=state.passes_I.at[candidate_C].add(1),
            step=state.step + 1,
        )

    return base.compiled(init, propose, update, believe=beta.believe)


SPEC = base.Spec("mopps", MoppsOptions, selector)


def distance(p_C: Array, low: float, high: float) -> jax.Array:
    """Returns how far each pass rate lies outside [low, high]; 0 inside."""
    return jnp.maximum(jnp.maximum(low - p_C, p_C - high), 0.0)
