"""Knapsack RL (arXiv 2509.25849): a step's answers go to the prompts where one more pays.

B prompts share B G answers. N answers to a prompt with pass rate p are worth, by the paper's equation,

    Value(N) = (1 - p^N - (1-p)^N) p (1-p)^2,

the chance of a mixed group times its information gain. This is concave in N from 1 on, so handing out one
answer after the other, always where it adds most, solves the knapsack exactly.

Departures from the public code: it is exact (the code's recursion scores a prompt without extra answers
as 0), no group exceeds `max_rollouts`, prompts not yet rolled out do not share the surplus of those all
wrong, and a batch of mixed prompts only is no error. Of a group that the buffer of newest answers holds
in part all answers count alike, where the code knows which came last; the order means nothing.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, types
from vade_jax.samplers import base, beta
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class KnapsackOptions(base.Options):
    """The hyperparameters of Knapsack RL; `num_rollouts` is the mean, and what unknown prompts get."""

    min_rollouts: int = 2  # the least for a prompt with right and wrong answers
    max_rollouts: int = 128  # the most for any prompt
    negative_rollouts: int = 2  # where the newest answers are all wrong, before a surplus
    positive_rollouts: int = 2  # the same for all right
    # A mixed prompt can use ln(1 - confidence) / ln(max(p, 1-p)) answers: see `usable`.
    confidence: float = fields.number(0.9, at_least=0, at_most=1 - 1e-6)
    # p is of this many newest answers, of 8 groups at most; of more if the newest group is larger.
    buffer: int = fields.number(16, at_least=1)
    min_count: int = fields.number(8, at_least=1)  # answers from which on p is known

    def __post_init__(self):
        super().__post_init__()
        usual = self.num_rollouts
        for name in ("min_rollouts", "negative_rollouts", "positive_rollouts"):
            fields.Interval(at_least=2, at_most=usual).check(name, getattr(self, name))
        fields.Interval(at_least=usual).check("max_rollouts", self.max_rollouts)
        held = max(self.buffer, usual)
        why = "as no more answers are held: no prompt would ever be known"
        fields.Interval(at_most=held, why=why).check("min_count", self.min_count)


@chex.dataclass(frozen=True)
class KnapsackState(types.Pytree):
    """The newest answers to every item, counted."""

    alpha_I: jax.Array  # float32, right ones that the buffer holds
    beta_I: jax.Array  # float32, wrong ones
    # float32, of the newest groups, the newest first: as many as fill the paper's buffer of 16 by the
    # smallest groups. A sum alone could not forget: p would never be 0 or 1 again behind a mixed group.
    right_I8: jax.Array
    wrong_I8: jax.Array
    visits_I: jax.Array  # int32


def selector(options: KnapsackOptions) -> base.Sampler:
    """Returns the Knapsack selector: uniform's order, with uneven groups."""

    def init(num_items: int) -> KnapsackState:
        zero_I = jnp.zeros(num_items, jnp.float32)
        zero_I8 = jnp.zeros((num_items, 8), jnp.float32)
        return KnapsackState(
            alpha_I=zero_I,
            beta_I=zero_I,
            right_I8=zero_I8,
            wrong_I8=zero_I8,
            visits_I=jnp.zeros(num_items, jnp.int32),
        )

    def propose(state: KnapsackState, key: jax.Array, num_prompts: int) -> types.Proposal:
        index_M = base.top_b(base.least_visited(state.visits_I), key, num_prompts)
        num_M = share(options, state.alpha_I[index_M], state.beta_I[index_M])
        return types.Proposal(index_M=index_M, num_rollouts_M=num_M)

    def update(state: KnapsackState, feedback: types.Feedback) -> KnapsackState:
        index_M, right_M = feedback.index_M, feedback.successes_M
        wrong_M, asked_M = feedback.trials_M - right_M, feedback.trials_M > 0
        right_M8 = pushed(state.right_I8[index_M], right_M, asked_M)
        wrong_M8 = pushed(state.wrong_I8[index_M], wrong_M, asked_M)
        share_M8 = held(right_M8 + wrong_M8, options.buffer)
        return KnapsackState(
            alpha_I=state.alpha_I.at[index_M].set(jnp.sum(share_M8 * right_M8, axis=1)),
            beta_I=state.beta_I.at[index_M].set(jnp.sum(share_M8 * wrong_M8, axis=1)),
            right_I8=state.right_I8.at[index_M].set(right_M8),
            wrong_I8=state.wrong_I8.at[index_M].set(wrong_M8),
            visits_I=state.visits_I.at[index_M].add(1),
        )

    return base.compiled(init, propose, update, believe=beta.believe, needs=base.Needs(uneven=True))


SPEC = base.Spec(
    "knapsack",
    KnapsackOptions,
    selector,
    # Its smallest group: rows of two answers, so that none stays empty in part.
    goes_with={"batch.answers_per_row": 2},
)


def share(options: KnapsackOptions, alpha_M: Array, beta_M: Array) -> Array:
    """Returns int32 num_rollouts_M of prompts with these newest answers, right and wrong."""
    total_M = alpha_M + beta_M
    known_M = total_M > options.min_count - 0.5  # the counts are sums of fractions
    wrong_M, right_M = known_M & (alpha_M == 0), known_M & (beta_M == 0)
    mixed_M = known_M & ~wrong_M & ~right_M
    low_M = jnp.select(
        [mixed_M, wrong_M, right_M],
        [options.min_rollouts, options.negative_rollouts, options.positive_rollouts],
        options.num_rollouts,
    )
    p_M = jnp.where(known_M, alpha_M / jnp.maximum(total_M, 1), 0.5)
    gain_MG = gain(p_M, options.max_rollouts)
    # What the mixed prompts cannot use goes evenly to those all wrong, else to the other ones.
    useful = usable(p_M, mixed_M, options.confidence, options.max_rollouts)
    order_MG = fill_order(gain_MG, low_M, mixed_M, wrong_M, useful)
    # One more answer to a prompt that is not mixed adds nothing by Value. Among those the one with
    # the fewest answers is next, so that a surplus is spread evenly.
    level_G = -jnp.arange(options.max_rollouts, dtype=jnp.float32)
    gain_MG = jnp.where(mixed_M[:, None], gain_MG, level_G)
    return fill(gain_MG, low_M, order_MG, options.num_rollouts * len(alpha_M))


# ------------------------------------------------------------------------------ newest answers
def pushed(count_M8: Array, count_M: Array, asked_M: Array) -> jax.Array:
    """Returns the counts with one more group in front, where it has answers; the oldest goes."""
    longer_M8 = jnp.concatenate([count_M[:, None], count_M8[:, :-1]], axis=1)
    return jnp.where(asked_M[:, None], longer_M8, count_M8)


def held(count_M8: Array, buffer: int) -> jax.Array:
    """Returns the share of each group that a buffer of newest answers holds; of the newest, all."""
    newer_M8 = jnp.cumsum(count_M8, axis=1) - count_M8
    room_M8 = jnp.maximum(buffer - newer_M8, 0)
    share_M8 = jnp.minimum(room_M8 / jnp.maximum(count_M8, 1), 1)
    return share_M8.at[:, 0].set(1)


# ------------------------------------------------------------------------------ value
# A prompt's answers are cells of a row [M, G]: cell g stands for answer g + 1.
def gain(p_M: Array, max_rollouts: int) -> Array:
    """Returns Value(N + 1) - Value(N) for N = 0 ... max_rollouts - 1; decreasing from N = 1 on."""
    p_MG, n_G = p_M[:, None], jnp.arange(max_rollouts)
    first_MG = p_MG**n_G * (1 - p_MG) + (1 - p_MG) ** n_G * p_MG
    return first_MG * p_MG * (1 - p_MG) ** 2


def usable(p_M: Array, mixed_M: Array, confidence: float, max_rollouts: int) -> jax.Array:
    """Returns how many answers the mixed prompts can use, each to see both outcomes.

    N answers with max(p, 1-p)^N <= 1 - confidence show the rarer outcome with that confidence.
    """
    likely_M = jnp.where(mixed_M, jnp.maximum(p_M, 1 - p_M), 0.5)
    need_M = jnp.floor(jnp.log1p(-confidence) / jnp.log(likely_M))
    return jnp.sum(jnp.where(mixed_M, jnp.minimum(need_M, max_rollouts), 0))


# ------------------------------------------------------------------------------ filling
# The classes of cells, in the order in which they are filled. CLOSED cells never are.
WITHIN, ALL_WRONG, REST, BEYOND, CLOSED = range(5)


def fill_order(
    gain_MG: Array, low_M: Array, mixed_M: Array, wrong_M: Array, useful: Array
) -> jax.Array:
    """Returns the class of every cell.

    The `useful` best cells of the mixed prompts come first (WITHIN), then prompts all wrong, then those
    all right or unknown, and at last what the mixed ones cannot use (BEYOND).
    """
    free_MG = jnp.arange(gain_MG.shape[1]) >= low_M[:, None]
    candidate_MG = jnp.where(free_MG & mixed_M[:, None], gain_MG, -jnp.inf)
    place_MG = places(-candidate_MG.ravel()).reshape(gain_MG.shape)
    mixed_MG = jnp.where(place_MG < useful, WITHIN, BEYOND)
    other_M = jnp.where(wrong_M, ALL_WRONG, REST)
    return jnp.where(mixed_M[:, None], mixed_MG, other_M[:, None])


def fill(gain_MG: Array, low_M: Array, order_MG: Array, budget: int) -> Array:
    """Returns int32 num_rollouts_M that add up to `budget`.

    The first `low_M` answers to each prompt are given; the rest of the budget fills cells by class,
    within it by gain. As the gain of a row falls, a row is filled from the left.
    """
    free_MG = jnp.arange(gain_MG.shape[1]) >= low_M[:, None]
    order_MG = jnp.where(free_MG, order_MG, CLOSED)
    place_Q = places(-gain_MG.ravel(), order_MG.ravel())
    filled_MG = (place_Q < budget - jnp.sum(low_M)).reshape(gain_MG.shape)
    return (low_M + jnp.sum(filled_MG, axis=1)).astype(jnp.int32)


def places(*keys: Array) -> jax.Array:
    """Returns the place of every cell when sorted by the last key, then by those before it."""
    order_Q = jnp.lexsort(keys)
    return jnp.zeros_like(order_Q).at[order_Q].set(jnp.arange(len(order_Q)))
