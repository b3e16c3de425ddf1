"""Uniform's prompts with uneven shares: in the update (Prompt-GDRO), or of the answers (Knapsack RL)."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, types
from vade_jax.samplers import base, beta, per_item, ranking
from vade_jax.types import Array

# ------------------------------------------------------------------------------ Prompt-GDRO
NUM_BINS = 10
NO_BIN = -1


@dataclasses.dataclass(frozen=True)
class GdroOptions(base.Options):
    # H, the latest visits that an item's bin is made of; ours
    window: int = fields.number(10, at_least=1, at_most=32, why="as a word has 32 bits")
    # An item leaves its bin when its rate is this far outside; ours, half the width of a bin
    margin: float = fields.number(0.05, at_least=0, below=0.1)
    learning_rate: float = fields.fraction(0.12)  # How far a step moves S towards a bin's loss
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


def gdro(options: GdroOptions) -> base.Sampler:
    """Returns Prompt-GDRO (arXiv 2601.19280): `uniform`'s prompts, weighted by the difficulty of their bin.

    A prompt is in one of 10 bins of its recent success: the share of its latest H visits in which at
    least one of the k answers was right. Each bin has a score, the moving average of the loss of its prompts,
    and the group advantages of a prompt are multiplied by a weight (`Proposal.weight_M`):

        S_b <- (1 - 0.12) S_b + 0.12 x mean loss of bin b    bins that a step has prompts of; others keep S
        weight = exp(0.65 S_b)

    Nothing is drawn by these weights: the paper defines a mixture with an even share, but does not use it.
    As in the paper, the weights are not scaled to mean 1. The paper's other half, Rollout-GDRO, splits the
    answers between bins; the paper never combines the two, and it is left out.

    Departures from the paper:
    - The loss of a prompt is the share of its wrong answers. The paper's is the surrogate of advantages
      divided by their standard deviation. Before the first update of a step it is 0 for every group, so all
      bins tie.
    - With losses from 0 to 1, all weights are from 1 to 1.92. The paper's bounds, C on |S| and 15 on the
      weight, would never decide, and are left out.
    - H and the margin by which a rate must leave its bin are not published; both are ours, as is its form.
    - k is the number of answers that a visit has. The paper says 8, and rolls out 4.
    - A prompt's weight comes from the bin that it has before its answers, and its loss counts for that bin. A
      prompt that was never visited has no bin: its weight is 1, and its loss counts for none. So the first
      pass over the data is exactly `uniform`'s.
    - A prompt without valid answers keeps its bin. A pass over all items counts as a visit of each.
    """

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
        # Not from `advantage_N`: advantages sum to 0 in every group, so they cannot distinguish bins.
        loss_M = 1 - feedback.successes_M / jnp.maximum(feedback.trials_M, 1)
        of_bins = loss_M, bin_M, asked_M & (bin_M != NO_BIN)
        return GdroState(
            visits_I=state.visits_I.at[index_M].add(1),
            history_I=state.history_I.at[index_M].set(history_M),
            seen_I=state.seen_I.at[index_M].set(seen_M),
            bin_I=state.bin_I.at[index_M].set(jnp.where(asked_M, next_M, bin_M)),
            score_A=per_item.moved_to_means(state.score_A, options.learning_rate, *of_bins),
        )

    believe = lambda state, proposal: {"gdro/weight": weights(state, proposal.index_M)}
    return base.compiled(init, propose, update, believe=believe, needs=base.Needs(weights=True))


GDRO = base.Spec("gdro", GdroOptions, gdro)


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


# ------------------------------------------------------------------------------ Knapsack RL
MIN_COUNT = 8  # fewest answers from which p counts as known, as in the public code


@dataclasses.dataclass(frozen=True)
class KnapsackOptions(beta.CountingOptions):
    """The hyperparameters of Knapsack RL. `num_rollouts` is the mean, and the number for unknown prompts."""

    min_rollouts: int = 2  # Fewest answers to a prompt whose pass rate is known, before any surplus
    max_rollouts: int = 128  # Most answers to any prompt
    # Beyond min_rollouts a mixed prompt can use ln(1 - confidence) / ln(max(p, 1-p)) answers; the rest is a
    # surplus
    confidence: float = fields.number(0.9, at_least=0, at_most=1 - 1e-6)
    # Newest answers, of at most 8 groups, that p is computed from; more if the newest group is larger
    buffer: int = fields.number(16, at_least=MIN_COUNT)

    def __post_init__(self):
        super().__post_init__()
        usual = self.num_rollouts
        fields.Interval(at_least=2, at_most=usual).check("min_rollouts", self.min_rollouts)
        fields.Interval(at_least=usual).check("max_rollouts", self.max_rollouts)


@chex.dataclass(frozen=True)
class KnapsackState(beta.BetaState):
    """Counts of the newest answers to every item, those in the buffer."""

    # float32, right and wrong answers of the 8 newest groups, newest first. 8 of the smallest groups (two
    # answers) fill the paper's buffer of 16. Groups are kept apart because a single sum could not forget:
    # after one mixed group, p would never be 0 or 1 again.
    right_I8: jax.Array
    wrong_I8: jax.Array
    visits_I: jax.Array = per_item.starts(0)


def knapsack(options: KnapsackOptions) -> base.Sampler:
    """Returns Knapsack RL (arXiv 2509.25849): answers go to the prompts where one more is worth most.

    The B prompts of a step, in the order of uniform, share B G answers. By the paper's equation, N answers to
    a prompt with pass rate p are worth

        Value(N) = (1 - p^N - (1-p)^N) p (1-p)^2,

    the chance of a mixed group times its information gain. This is concave in N from N = 1 on. So the
    knapsack is solved exactly by assigning answers one by one, each to the prompt where it adds most.

    Departures from the public code:
    - The solution is exact; the recursion in the code scores a prompt without extra answers as 0.
    - No group exceeds `max_rollouts`.
    - Prompts not yet rolled out get no part of the surplus for prompts all wrong.
    - Prompts all wrong and all right get as few answers as mixed ones at least; the code has a number for
      each.
    - A batch of only mixed prompts is not an error.
    - If the buffer of newest answers holds a part of a group, all answers of the group count by that share.
      The code knows which came last, but the order of answers in a group means nothing.
    """

    def init(num_items: int, **prior: Array) -> KnapsackState:
        zero_I8 = jnp.zeros((num_items, 8), jnp.float32)
        groups = {"right_I8": zero_I8, "wrong_I8": zero_I8}
        return beta.begin(KnapsackState, options, num_items, **prior, **groups)

    def propose(state: KnapsackState, key: jax.Array, num_prompts: int) -> types.Proposal:
        index_M = ranking.top_b(ranking.least_visited(state.visits_I), key, num_prompts)
        num_M = share(options, state.alpha_I[index_M], state.beta_I[index_M])
        return types.Proposal(index_M=index_M, num_rollouts_M=num_M)

    def update(state: KnapsackState, feedback: types.Feedback) -> KnapsackState:
        index_M, asked_M = feedback.index_M, feedback.trials_M > 0

        def pushed(count_I8: Array, new_M: Array) -> jax.Array:
            """Returns the counts with the new group in front, and the oldest dropped, if it has answers."""
            count_M8 = count_I8[index_M]
            longer_M8 = jnp.concatenate([new_M[:, None], count_M8[:, :-1]], axis=1)
            return jnp.where(asked_M[:, None], longer_M8, count_M8)

        right_M8 = pushed(state.right_I8, feedback.successes_M)
        wrong_M8 = pushed(state.wrong_I8, feedback.trials_M - feedback.successes_M)
        share_M8 = held(right_M8 + wrong_M8, options.buffer)
        return KnapsackState(
            alpha_I=state.alpha_I.at[index_M].set(jnp.sum(share_M8 * right_M8, axis=1)),
            beta_I=state.beta_I.at[index_M].set(jnp.sum(share_M8 * wrong_M8, axis=1)),
            right_I8=state.right_I8.at[index_M].set(right_M8),
            wrong_I8=state.wrong_I8.at[index_M].set(wrong_M8),
            visits_I=state.visits_I.at[index_M].add(1),
        )

    needs = base.Needs(items=(beta.PASS_RATE,), uneven=True)
    return base.compiled(init, propose, update, believe=beta.believe, needs=needs)


# Rows of two answers, the size of the smallest group, so that no row is partly empty.
KNAPSACK = base.Spec("knapsack", KnapsackOptions, knapsack, goes_with={"batch.answers_per_row": 2})


# The answers to a prompt are the cells of one row of [M, G]: cell g stands for answer g + 1. The classes of
# cells, in the order in which they are filled: the best of the mixed prompts, prompts all wrong, all right or
# unknown, the others of the mixed prompts. CLOSED cells, of answers that a prompt gets anyway, never are.
WITHIN, ALL_WRONG, REST, BEYOND, CLOSED = range(5)


def share(options: KnapsackOptions, alpha_M: Array, beta_M: Array) -> Array:
    """Returns int32 num_rollouts_M for prompts with `alpha_M` right and `beta_M` wrong newest answers.

    Their sum is B G. What is left beyond the fewest answers fills cells in the order of their class, and
    within a class by gain. Gains fall along a row, so a row is filled from the left.
    """
    total_M = alpha_M + beta_M
    known_M = total_M > MIN_COUNT - 0.5  # counts are sums of fractions, so they are inexact
    wrong_M, right_M = known_M & (alpha_M == 0), known_M & (beta_M == 0)
    mixed_M = known_M & ~wrong_M & ~right_M
    low_M = jnp.where(known_M, options.min_rollouts, options.num_rollouts)
    p_M = jnp.where(known_M, alpha_M / jnp.maximum(total_M, 1), 0.5)
    gain_MG, mixed_M1 = gain(p_M, options.max_rollouts), mixed_M[:, None]
    free_MG = jnp.arange(options.max_rollouts) >= low_M[:, None]
    # With N answers such that max(p, 1-p)^N <= 1 - confidence, the rarer outcome of a mixed prompt occurs
    # with at least that confidence. N is rounded down, as in the public code, so it is a little less: 0.875
    # for 0.9 at p = 0.5. What they cannot use goes evenly to prompts all wrong, or else to the others.
    likely_M = jnp.where(mixed_M, jnp.maximum(p_M, 1 - p_M), 0.5)
    need_M = jnp.floor(jnp.log1p(-options.confidence) / jnp.log(likely_M))
    useful = jnp.sum(jnp.where(mixed_M, jnp.minimum(need_M, options.max_rollouts), 0))
    candidate_MG = jnp.where(free_MG & mixed_M1, gain_MG, -jnp.inf)
    place_MG = ranking.places(-candidate_MG.ravel()).reshape(gain_MG.shape)
    other_M1 = jnp.where(wrong_M, ALL_WRONG, REST)[:, None]
    class_MG = jnp.where(mixed_M1, jnp.where(place_MG < useful, WITHIN, BEYOND), other_M1)
    class_MG = jnp.where(free_MG, class_MG, CLOSED)
    # One more answer to a prompt that is not mixed adds nothing to Value. Among these, the prompt with the
    # fewest answers is next, which spreads the surplus evenly.
    level_G = -jnp.arange(options.max_rollouts, dtype=jnp.float32)
    gain_MG = jnp.where(mixed_M1, gain_MG, level_G)
    place_Q = ranking.places(-gain_MG.ravel(), class_MG.ravel())
    surplus = options.num_rollouts * len(alpha_M) - jnp.sum(low_M)
    filled_MG = (place_Q < surplus).reshape(gain_MG.shape)
    return (low_M + jnp.sum(filled_MG, axis=1)).astype(jnp.int32)


def held(count_M8: Array, buffer: int) -> jax.Array:
    """Returns the share of each group that a buffer of newest answers holds; 1 for the newest group."""
    newer_M8 = jnp.cumsum(count_M8, axis=1) - count_M8
    room_M8 = jnp.maximum(buffer - newer_M8, 0)
    share_M8 = jnp.minimum(room_M8 / jnp.maximum(count_M8, 1), 1)
    return share_M8.at[:, 0].set(1)


def gain(p_M: Array, max_rollouts: int) -> Array:
    """Returns Value(N + 1) - Value(N) for N = 0 ... max_rollouts - 1; decreasing from N = 1 on."""
    p_MG, n_G = p_M[:, None], jnp.arange(max_rollouts)
    first_MG = p_MG**n_G * (1 - p_MG) + (1 - p_MG) ** n_G * p_MG
    return first_MG * p_MG * (1 - p_MG) ** 2
