"""Prompt-GDRO (arXiv 2601.19280): prompts as `uniform` chooses them; those of a hard kind weigh more.

A prompt's kind is one of 10 bins of its recent success: the share of its latest H visits in which at least
one of the k answers was right. Each bin has a score, the moving average of the loss of its prompts, and the
group advantages of a prompt are multiplied by a weight (`Proposal.weight_M`):

    S_b <- (1 - 0.12) S_b + 0.12 x mean loss of bin b      the bins that a step has prompts of; others keep S
    weight = exp(0.65 S_b)

Nothing is drawn by these weights: the paper's mixture of them with an even share is not what it applies. As
in the paper, the weights are not scaled to mean 1. The paper's other half, Rollout-GDRO, splits the answers
between bins; the paper never joins the two, and it is left out.

Departures from the paper:
- The loss of a prompt is the share of its wrong answers. The paper's is the surrogate of advantages divided
  by their standard deviation. Before the first update of a step it is 0 for every group, so all bins tie.
- With losses from 0 to 1, all weights are from 1 to 1.92. The paper's bounds, C on |S| and 15 on the weight,
  would never decide, and are left out.
- H and the margin by which a rate must leave its bin are not published. Those used here are ours, and so is
  the form of the margin.
- k is the number of answers that a visit has. The paper says 8, and rolls out 4.
- A prompt's weight comes from the bin that it has before its answers, and its loss counts for that bin. A
  prompt that was never visited has no bin: its weight is 1, and its loss counts for none. So the first pass
  over the data is exactly `uniform`'s.
- A prompt without valid answers keeps its bin. A pass over all items counts as a visit of each.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, types
from vade_jax.samplers import base, per_item, ranking
from vade_jax.types import Array

NUM_BINS = 10
NO_BIN = -1


@dataclasses.dataclass(frozen=True)
class GdroOptions(base.Options):
    # H, the latest visits that an item's bin is made of; ours
    window: int = fields.number(10, at_least=1, at_most=32, why="as a word has 32 bits")
    # An item leaves its bin when its rate is this far outside; ours, half the width of a bin
    margin: float = fields.number(0.05, at_least=0, below=0.1)
    learning_rate: float = fields.fraction(0.12)  # What a step moves S towards the loss of a bin
    # eta, how strongly the scores count in the weights; 0: all are 1
    sharpness: float = fields.number(0.65, at_least=0)


@chex.dataclass(frozen=True)
class GdroState(types.Pytree):
    """The recent visits of every item, its bin, and the score of each of the A = 10 bins."""

    visits_I: jax.Array = per_item.starts(0)  # as uniform's
    # A bit for each of the latest visits, the last one lowest: 1 if any answer was right
    history_I: jax.Array = per_item.starts(np.uint32(0))
    seen_I: jax.Array = per_item.starts(0)  # how many of these bits count; at most the window
    bin_I: jax.Array = per_item.starts(NO_BIN)
    score_A: jax.Array  # float32, S


def selector(options: GdroOptions) -> base.Sampler:
    def init(num_items: int) -> GdroState:
        return per_item.begin(GdroState, num_items, score_A=np.zeros(NUM_BINS, np.float32))

    def weights(state: GdroState, index_M: Array) -> jax.Array:
        bin_M = state.bin_I[index_M]
        weight_A = jnp.exp(options.sharpness * state.score_A)
        return jnp.where(bin_M == NO_BIN, 1.0, weight_A[bin_M])

    def propose(state: GdroState, key: jax.Array, num_prompts: int) -> types.Proposal:
        due_I = ranking.least_visited(state.visits_I)
        proposal = ranking.best(due_I, key, num_prompts, options.num_rollouts)
        return proposal.replace(weight_M=weights(state, proposal.index_M))

    def update(state: GdroState, feedback: types.Feedback) -> GdroState:
        index_M, asked_M = feedback.index_M, feedback.trials_M > 0
        history_M, seen_M = state.history_I[index_M], state.seen_I[index_M]
        bin_M = state.bin_I[index_M]
        solved_M = (feedback.successes_M > 0).astype(jnp.uint32)
        longer_M = (history_M << 1 | solved_M) & jnp.uint32(2**options.window - 1)
        history_M = jnp.where(asked_M, longer_M, history_M)
        seen_M = jnp.minimum(seen_M + asked_M, options.window)
        next_M = next_bin(bin_M, history_M, seen_M, options.margin)
        return GdroState(
            visits_I=state.visits_I.at[index_M].add(1),
            history_I=state.history_I.at[index_M].set(history_M),
            seen_I=state.seen_I.at[index_M].set(seen_M),
            bin_I=state.bin_I.at[index_M].set(jnp.where(asked_M, next_M, bin_M)),
            score_A=scored(state.score_A, bin_M, feedback, options.learning_rate),
        )

    believe = lambda state, proposal: {"gdro/weight": weights(state, proposal.index_M)}
    return base.compiled(init, propose, update, believe=believe, needs=base.Needs(weights=True))


SPEC = base.Spec("gdro", GdroOptions, selector)


def next_bin(bin_M: Array, history_M: Array, seen_M: Array, margin: float) -> jax.Array:
    """Returns the bin of each rate: that of before, unless the rate is more than `margin` outside of it.

    In counts of visits: a rate of 3/10 in float32 may be below the edge 0.3.
    """
    tenths_M = NUM_BINS * jax.lax.population_count(history_M).astype(jnp.int32)
    room_M = NUM_BINS * margin * seen_M
    above_M = tenths_M - (bin_M + 1) * seen_M >= room_M
    below_M = bin_M * seen_M - tenths_M > room_M
    plain_M = jnp.minimum(tenths_M // jnp.maximum(seen_M, 1), NUM_BINS - 1)
    return jnp.where((bin_M == NO_BIN) | above_M | below_M, plain_M, bin_M)


def scored(
    score_A: Array, bin_M: Array, feedback: types.Feedback, learning_rate: float
) -> jax.Array:
    """Returns the scores after a step: each moves to the mean loss of the prompts in its bin, if any."""
    known_M = (feedback.trials_M > 0) & (bin_M != NO_BIN)
    # Not of `advantage_N`: advantages sum to 0 in every group, so they tell no bin from another.
    loss_M = 1 - feedback.successes_M / jnp.maximum(feedback.trials_M, 1)

    def total(x_M: Array | float) -> jax.Array:
        return jax.ops.segment_sum(jnp.where(known_M, x_M, 0.0), bin_M, NUM_BINS)

    count_A, loss_A = total(1.0), total(loss_M)
    moved_A = score_A + learning_rate * (loss_A / jnp.maximum(count_A, 1) - score_A)
    return jnp.where(count_A > 0, moved_A, score_A)
