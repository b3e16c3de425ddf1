"""SEC, the self-evolving curriculum (arXiv 2505.14970): a bandit over categories.

Each slot of a batch draws a category from softmax(Q / temperature), with replacement, and takes the next
item of a shuffled pass over that category. The reward r of a category is the mean |advantage| of its
answers, and Q <- Q + learning_rate (r - Q): Algorithm 1 and Eq. 5. The paper's advantages are divided by
the standard deviation of the group, which is the default of the loop.

Departures from the paper:
- No item occurs twice in a batch. If a category gets more slots than it has items, the rest go to random
  categories that still have items.
- A category without a valid answer counts as not drawn.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, types
from vade_jax.samplers import base, per_item, ranking
from vade_jax.types import Array

POOL = 20  # candidates per prompt of the batch, which are the only items that get sorted


@dataclasses.dataclass(frozen=True)
class SecOptions(base.Options):
    # tau, temperature of the softmax (the paper: 1.0 for countdown, 0.4 for mathematics, 0.2 for puzzles)
    temperature: float = fields.number(1.0, above=0)
    learning_rate: float = fields.fraction(0.5)  # alpha of Q <- Q + alpha (r - Q)
    # "paper": only the categories drawn are updated. "code": the others too, with r = 0
    variant: str = fields.choice("paper", "code")


@chex.dataclass(frozen=True)
class SecState(types.Pytree):
    """The expected reward of each of the A categories, and the visits of their items."""

    value_A: jax.Array  # float32, Q
    category_I: jax.Array  # int32
    visits_I: jax.Array  # int32


def selector(options: SecOptions) -> base.Sampler:
    """Returns SEC; `init(num_items, category=...)` takes the category of every item, a number or name."""

    def init(num_items: int, *, category: Array | None = None) -> SecState:
        category_I, num_categories = per_item.categories("sec", category, num_items)
        return SecState(
            value_A=jnp.zeros(num_categories, jnp.float32),
            category_I=jnp.asarray(category_I),
            visits_I=jnp.zeros(num_items, jnp.int32),
        )

    def propose(state: SecState, key: jax.Array, num_prompts: int) -> types.Proposal:
        ranking.check_num_prompts(num_prompts, len(state.visits_I))
        arm_key, luck_key, tie_key = jax.random.split(key, 3)
        size_A = jnp.bincount(state.category_I, length=len(state.value_A))
        logit_A = state.value_A / options.temperature
        count_A = slots(arm_key, logit_A, size_A, num_prompts)
        # New luck in every step shuffles the rest of each pass again, so no permutation is stored.
        luck_I = jax.random.uniform(luck_key, state.visits_I.shape)
        index_M = next_in_arms(state, luck_I, size_A, count_A, num_prompts)
        index_M = jax.random.permutation(tie_key, index_M)
        return ranking.same_num_rollouts(index_M, options.num_rollouts)

    def update(state: SecState, feedback: types.Feedback) -> SecState:
        arm_N = state.category_I[feedback.index_M][feedback.group_N]

        def total(x_N: Array | float) -> jax.Array:
            valid_N = jnp.where(feedback.valid_N, x_N, 0.0)
            return jax.ops.segment_sum(valid_N, arm_N, len(state.value_A))

        count_A = total(jnp.ones(arm_N.shape))
        reward_A = total(jnp.abs(feedback.advantage_N)) / jnp.maximum(count_A, 1)
        moved_A = state.value_A + options.learning_rate * (reward_A - state.value_A)
        known_A = True if options.variant == "code" else count_A > 0
        return state.replace(
            value_A=jnp.where(known_A, moved_A, state.value_A),
            visits_I=state.visits_I.at[feedback.index_M].add(1),
        )

    needs = base.Needs(items=(base.PerItem("category", "required"),))
    return base.compiled(init, propose, update, needs=needs)


SPEC = base.Spec("sec", SecOptions, selector, goes_with=per_item.WITH_CATEGORY)


def slots(key: jax.Array, logit_A: Array, size_A: Array, num_prompts: int) -> jax.Array:
    """Returns how many of `num_prompts` slots each category gets, at most the number of its items.

    Slots are drawn from the softmax of `logit_A`. Those that do not fit are drawn again, uniformly over the
    categories with room. A category whose value is NaN gets a slot only when no other has room.
    """
    # -1e9, not -inf: if only NaN categories have room, a softmax of only -inf would be NaN.
    nan_A = jnp.isnan(logit_A)
    first_A = jnp.where(nan_A, -1e9, logit_A)
    refill_A = jnp.where(nan_A, -1e9, 0.0)

    def add(carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        count, count_A, missing = carry
        room_A = count_A < size_A
        logit_A = jnp.where(room_A, jnp.where(count == 0, first_A, refill_A), -jnp.inf)
        # B draws every time, of which the first `missing` count: shapes must be static.
        arm_M = jax.random.categorical(
            jax.random.fold_in(key, count), logit_A, shape=(num_prompts,)
        )
        new_M = jnp.arange(num_prompts) < missing
        count_A = jnp.minimum(count_A.at[arm_M].add(new_M.astype(jnp.int32)), size_A)
        return count + 1, count_A, num_prompts - jnp.sum(count_A)

    carry = jnp.int32(0), jnp.zeros(size_A.shape, jnp.int32), jnp.int32(num_prompts)
    return jax.lax.while_loop(lambda c: c[2] > 0, add, carry)[1]


def next_in_arms(
    state: SecState, luck_I: Array, size_A: Array, count_A: Array, num_prompts: int
) -> jax.Array:
    """Returns `index_M`, the first `count_A` items of every category in the order of `rank_in_category`.

    Sorting a million items takes 20 times as long as everything else, so only the items that `likely`
    finds are sorted. If these are too few or too many, which can happen when the items of a category were
    visited unevenly, all items are sorted.
    """
    category_I, visits_I = state.category_I, state.visits_I

    def first(index_C: Array) -> jax.Array:
        arm_C = category_I[index_C]
        rank_C = rank_in_category(luck_I[index_C], arm_C, visits_I[index_C])
        chosen_C = (rank_C < count_A[arm_C]).astype(jnp.float32)
        return index_C[jax.lax.top_k(chosen_C, num_prompts)[1]]

    first_of_all = lambda: first(jnp.arange(len(visits_I)))
    if len(visits_I) <= POOL * num_prompts:
        return first_of_all()
    likely_I = likely(state, luck_I, size_A, count_A)
    likely_A = jnp.bincount(category_I, likely_I, length=len(size_A))
    enough = jnp.all(likely_A >= count_A) & (jnp.sum(likely_A) <= POOL * num_prompts)
    # top_k fills up with items that are not likely. That does no harm: they rank after the likely items of
    # their category, and every category has enough of those.
    first_of_likely = lambda: first(jax.lax.top_k(likely_I, POOL * num_prompts)[1])
    return jax.lax.cond(enough, first_of_likely, first_of_all)


def likely(state: SecState, luck_I: Array, size_A: Array, count_A: Array) -> jax.Array:
    """Returns 1.0 for the first items of each category, somewhat more of them than `count_A`.

    Luck is uniform: of the d items with the fewest visits, about n have luck below n / d. So a bound on
    visits + luck finds about n items without sorting. Asking for 6 standard deviations and 10 items more
    makes it safe.
    """
    category_I, num_arms = state.category_I, len(size_A)
    level_A = jax.ops.segment_min(state.visits_I, category_I, num_arms)
    ahead_I = state.visits_I - level_A[category_I]
    due_I = (ahead_I == 0).astype(jnp.int32)
    due_A = jax.ops.segment_sum(due_I, category_I, num_arms)
    wanted_A = jnp.where(count_A > 0, count_A + 6 * jnp.sqrt(count_A) + 10, 0)
    # The bound within this pass. If too few of its items are left, all of them, and the rest from the next.
    now_A = wanted_A / jnp.maximum(due_A, 1)
    later_A = 1 + (wanted_A - due_A) / jnp.maximum(size_A - due_A, 1)
    bound_A = jnp.where(wanted_A < due_A, now_A, later_A)
    return (ahead_I + luck_I < bound_A[category_I]).astype(jnp.float32)


def rank_in_category(luck_I: Array, category_I: Array, visits_I: Array) -> jax.Array:
    """Returns each item's rank (from 0) in its category: the least visited first, then by luck."""
    num_items = len(category_I)
    order_I = jnp.lexsort((luck_I, visits_I, category_I))
    place_I = jnp.zeros(num_items, jnp.int32).at[order_I].set(jnp.arange(num_items))
    first_I = jnp.searchsorted(category_I[order_I], category_I).astype(jnp.int32)
    return place_I - first_I
