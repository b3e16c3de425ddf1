"""Importance: prompts that teach are drawn more often, and weigh less in proportion.

A candidate of this project, not of a paper. Every other selector changes what is trained for: what it
rarely draws counts for little, and may be forgotten. Importance sampling (for SGD: arXiv 1401.2753) keeps
the objective, the mean over all prompts, and spends the rollouts where the groups are mixed:

    V_i   = E[1 - p^G - (1-p)^G] by the posterior of `pooled`
    pi_i ~ (1 - floor) S_i / sum(S) + floor / I, S = sqrt(V)   the chance to be drawn, at most 1, B in all
    w_i   = (B / I) / pi_i                                     times the advantages of i's group

With weights the expected gradient is that of uniform batches, with less noise: where V of the groups are
mixed, the mean of |g|^2 is in proportion to V, for advantages divided by their deviation, and the
weighted sum's second moment, sum(V / pi), is least at the root of V. At V itself it is uniform's.
`floor` is the share of uniform in the draw and bounds the weights by 1 / floor. Adam divides by the size
of gradients, so what it makes of weights is no longer uniform's update. What came of it: docs/arenas.md.

The draw is Pareto sampling (Rosen, 1997): B items in one top-B, each with a chance very near pi_i.
Exact inclusion probabilities would need a sequential pass over all items.
"""

import dataclasses

import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, pooled
from vade_jax.types import Array

# Passes that cap probabilities at 1 and share out what was cut. After them they sum to B, nearly.
NUM_CAPPED = 16


@dataclasses.dataclass(frozen=True)
class ImportanceOptions(pooled.PooledOptions):
    """The hyperparameters of importance; those of the posterior are pooled's."""

    floor: float = fields.number(0.1, above=0, at_most=1)  # the share of uniform in the draw
    weights: str = fields.choice("inverse", "none")  # "none": as drawn


def selector(options: ImportanceOptions) -> base.Sampler:
    """Returns the selector; `init(num_items, category=...)` takes the category of every item."""
    below = pooled.selector(options)

    def propose(state: pooled.PooledState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        posterior = pooled.posterior(state, options.strength)
        mixed_I = beta.prob_mixed(*posterior, options.num_rollouts)
        prob_I = probabilities(jnp.sqrt(mixed_I), num_prompts, options.floor)
        index_M = base.top_b(pareto(prob_I, keys.draw), keys.ties, num_prompts)
        proposal = base.same_num_rollouts(index_M, options.num_rollouts)
        if options.weights == "none":
            return proposal
        return proposal.replace(weight_M=num_prompts / len(prob_I) / prob_I[index_M])

    return below._replace(
        propose=jax.jit(propose, static_argnames="num_prompts"),
        weighs=options.weights == "inverse",
        without={"weighs": "weights='none' of importance"},
    )


METHOD = base.Method("importance", ImportanceOptions, selector, pooled.METHOD.goes_with)


def probabilities(size_I: Array, num_prompts: int, floor: float) -> jax.Array:
    """Returns the chance of each item to be drawn: by size and floor, at most 1, `num_prompts` in all.

    An item whose size is NaN has none; its chance is NaN, too.
    """
    is_known_I = ~jnp.isnan(size_I)
    known_I = jnp.where(is_known_I, size_I, 0.0)
    share_I = (1 - floor) * known_I / jnp.maximum(jnp.sum(known_I), 1e-30)
    share_I += floor * is_known_I / jnp.sum(is_known_I)

    def cap(_, prob_I):
        # What is certain keeps its place; the other places are shared out among the others.
        is_free_I = prob_I < 1
        num_free = num_prompts - jnp.sum(~is_free_I)
        scale = num_free / jnp.maximum(jnp.sum(is_free_I * share_I), 1e-30)
        return jnp.where(is_free_I, jnp.minimum(scale * share_I, 1.0), 1.0)

    prob_I = jax.lax.fori_loop(0, NUM_CAPPED, cap, jnp.minimum(num_prompts * share_I, 1.0))
    return jnp.where(is_known_I, prob_I, jnp.nan)


def pareto(prob_I: Array, key: jax.Array) -> jax.Array:
    """Returns scores of which the B largest are a Pareto sample: logit(pi) - logit(u), u ~ U(0, 1)."""
    tiny = jnp.finfo(jnp.float32).tiny
    u_I = jax.random.uniform(key, prob_I.shape, minval=tiny)
    return jax.scipy.special.logit(prob_I) - jax.scipy.special.logit(u_I)
