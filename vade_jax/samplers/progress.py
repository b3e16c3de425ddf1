"""Progress: draw from the categories whose pass rate is changing.

A candidate of this project, after the curricula of learning progress (arXiv 1707.00183, 1910.07224). A pass
rate in the middle does not say that a visit teaches: a multiple-choice question that is guessed stays
there for ever. What teaches has a pass rate that moves. An item is visited too rarely to show that, so it is
read off its category, a family and level or a data set, by two averages of the answers:

    LP_a = |rate over the last answers - rate over a memory `slowness` times as long|
    prob_i = (1 - share) V_i / sum(V) + share LP_a(i) V_i / sum(LP V)

with V = E[1 - p^G - (1-p)^G] of `pooled`, the chance of a mixed group: within a category the items that
may still be mixed come first. The absolute value also goes where a pass rate falls, so what is being
forgotten is asked again. Before any category has moved, and without categories where the data do not
move as a whole, the draw is `pooled`'s. What came of it: docs/arenas.md.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, pooled
from vade_jax.types import Array

TINY = 1e-9  # answers; of none at all the rates are 0


@dataclasses.dataclass(frozen=True)
class ProgressOptions(pooled.PooledOptions):
    """The hyperparameters of progress; those of the posterior are pooled's."""

    share: float = fields.fraction(0.8)  # of the draw that goes by progress
    slowness: float = fields.number(4.0, above=1)  # the longer memory is so many times the other


@chex.dataclass(frozen=True)
class ProgressState:
    """What pooled knows, and counts of the A categories that fade more slowly."""

    known: pooled.PooledState
    slow_right_A: Array  # float32
    slow_wrong_A: Array  # float32


def selector(options: ProgressOptions) -> base.Sampler:
    """Returns the selector; `init(num_items, category=...)` takes the category of every item."""
    below = pooled.selector(options)
    # A memory m is a window of 1 / (1 - m) steps.
    slow_memory = 1 - (1 - options.memory) / options.slowness

    def init(num_items: int, **arrays: Array) -> ProgressState:
        known = below.init(num_items, **arrays)
        zero_A = jnp.zeros_like(known.right_A)
        return ProgressState(known=known, slow_right_A=zero_A, slow_wrong_A=zero_A)

    def propose(state: ProgressState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys = rng.selection_keys(key)
        posterior = pooled.posterior(state.known, options.strength)
        mixed_I = beta.prob_mixed(*posterior, options.num_rollouts)
        prob_I = probabilities(mixed_I, moved(state)[state.known.category_I], options.share)
        score_I = base.gumbel_scores(jnp.log(prob_I), keys.draw)
        index_M = base.top_b(score_I, keys.ties, num_prompts)
        return base.same_num_rollouts(index_M, options.num_rollouts)

    def update(state: ProgressState, feedback: types.Feedback) -> ProgressState:
        category_M = state.known.category_I[feedback.index_M]
        right_M, wrong_M = feedback.successes_M, feedback.trials_M - feedback.successes_M
        return ProgressState(
            known=below.update(state.known, feedback),
            slow_right_A=(slow_memory * state.slow_right_A).at[category_M].add(right_M),
            slow_wrong_A=(slow_memory * state.slow_wrong_A).at[category_M].add(wrong_M),
        )

    def believe(state: ProgressState, proposal: types.Proposal) -> dict[str, jax.Array]:
        return below.believe(state.known, proposal)

    return base.compiled(init, propose, update, believe=believe, accepts=below.accepts)


METHOD = base.Method("progress", ProgressOptions, selector, pooled.METHOD.goes_with)


def moved(state: ProgressState) -> jax.Array:
    """Returns the absolute progress of each category; 0 for one without an answer."""
    known = state.known
    slow_A = state.slow_right_A / jnp.maximum(state.slow_right_A + state.slow_wrong_A, TINY)
    # Where answers get few the short average falls back on the long one. With a prior of its own
    # it would move there, and a category that nobody asks about would look like one that learns.
    fast_A = (known.right_A + pooled.PRIOR * slow_A) / (
        known.right_A + known.wrong_A + pooled.PRIOR
    )
    return jnp.abs(fast_A - slow_A)


def probabilities(mixed_I: Array, progress_I: Array, share: float) -> jax.Array:
    """Returns what the draw is in proportion to: by chance and, where anything moves, by progress."""
    by_chance_I = mixed_I / jnp.nansum(mixed_I)
    total = jnp.nansum(progress_I * mixed_I)
    by_progress_I = jnp.where(
        total > 0, progress_I * mixed_I / jnp.maximum(total, 1e-30), by_chance_I
    )
    return (1 - share) * by_chance_I + share * by_progress_I
