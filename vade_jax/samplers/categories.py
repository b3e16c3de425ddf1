"""Three selectors by category: pooled counts, SEC's bandit, and the control strata.

Pooled is from this project, not from a paper. In a few epochs an item is visited only a few times, so its
own counts say little and are outdated by the next visit. But the pass rates of items in one category,
such as a family and level or a data set, mostly move together. With m the recent pass rate of an item's
category and a, b its own decayed counts, the posterior of its pass rate is

    p ~ Beta(s m + a, s (1 - m) + b)                  the category counts as s = `strength` answers

and a batch is drawn without replacement in proportion to V = E[1 - p^G - (1-p)^G], the chance of a mixed
group, as in MaPP (arXiv 2609.34990). The counts of a category fade fast, at every step. So a category
that looked solved or hopeless becomes uncertain again after a while, and a few of its items are tried. No
item is excluded forever, because V is always above 0.

Without categories, all items share one, with the pass rate of the whole data set.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, per_item, ranking
from vade_jax.types import Array

# ------------------------------------------------------------------------------ pooled
PRIOR = 1.0  # answers, half of them right, that are added to the counts of every category


@dataclasses.dataclass(frozen=True)
class PooledOptions(beta.CountingOptions):
    strength: float = fields.number(4.0, above=0)  # s, answers that a category counts as
    memory: float = fields.fraction(0.9)  # Share of every category's counts that a step keeps
    # Share of its own counts that a chosen item keeps after a step
    decay_selected: float = fields.fraction(0.5)
    # Share of its own counts that any other item keeps after a step
    decay_rest: float = fields.fraction(0.98)


@chex.dataclass(frozen=True)
class PooledState(beta.BetaState):
    """Decayed counts of right and wrong answers, of every item and of each of the A categories."""

    right_A: Array  # float32, right answers in the category
    wrong_A: Array  # float32, wrong answers in the category
    category_I: Array  # int32


def pooled(options: PooledOptions) -> base.Sampler:
    """Returns the pooled selector; `init` takes the category of every item, and known pass rates."""
    decays = {"decay_selected": options.decay_selected, "decay_rest": options.decay_rest}

    def init(num_items: int, *, category: Array | None = None, **prior: Array) -> PooledState:
        if category is None:
            category = np.zeros(num_items, np.int32)
        category_I, num_categories = per_item.categories("pooled", category, num_items)
        zero_A = np.zeros(num_categories, np.float32)
        of_categories = {"right_A": zero_A, "wrong_A": zero_A, "category_I": category_I}
        return beta.begin(PooledState, options, num_items, **prior, **of_categories)

    def propose(state: PooledState, key: jax.Array, num_prompts: int) -> types.Proposal:
        keys, G = rng.selection_keys(key), options.num_rollouts
        mixed_I = beta.prob_mixed(*posterior(state, options.strength), G)
        return ranking.drawn(jnp.log(mixed_I), keys, num_prompts, G)

    def update(state: PooledState, feedback: types.Feedback) -> PooledState:
        right_M, wrong_M = feedback.successes_M, feedback.trials_M - feedback.successes_M
        category_M = state.category_I[feedback.index_M]

        def count(count_A: Array, new_M: Array) -> jax.Array:
            return jnp.asarray(options.memory * count_A).at[category_M].add(new_M)

        right_A, wrong_A = count(state.right_A, right_M), count(state.wrong_A, wrong_M)
        return beta.counted(state.replace(right_A=right_A, wrong_A=wrong_A), feedback, **decays)

    def believe(state: PooledState, proposal: types.Proposal) -> dict[str, Array]:
        alpha_I, beta_I = posterior(state, options.strength)
        return beta.believe(state.replace(alpha_I=alpha_I, beta_I=beta_I), proposal)

    needs = base.Needs(items=(base.PerItem("category"), beta.PASS_RATE))
    return base.compiled(init, propose, update, believe=believe, needs=needs)


POOLED = base.Spec("pooled", PooledOptions, pooled, goes_with=per_item.WITH_CATEGORY)


def posterior(state: PooledState, strength: float) -> tuple[Array, Array]:
    """Returns alpha_I and beta_I of Beta(alpha + 1, beta + 1), the posterior of every pass rate."""
    asked_A = state.right_A + state.wrong_A
    rate_I = ((state.right_A + PRIOR / 2) / (asked_A + PRIOR))[state.category_I]
    # The category is the prior here. It replaces the +1 of VADE's posterior, hence the -1.
    return state.alpha_I + strength * rate_I - 1, state.beta_I + strength * (1 - rate_I) - 1


# ------------------------------------------------------------------------------ SEC
@dataclasses.dataclass(frozen=True)
class SecOptions(base.Options):
    # tau, temperature of the softmax (the paper: 1.0 for countdown, 0.4 for mathematics, 0.2 for puzzles)
    temperature: float = fields.number(1.0, above=0)
    learning_rate: float = fields.fraction(0.5)  # alpha of Q <- Q + alpha (r - Q)


@chex.dataclass(frozen=True)
class SecState(types.Pytree):
    """The expected reward of each of the A categories, and the visits of their items."""

    value_A: jax.Array  # float32, Q
    category_I: jax.Array  # int32
    visits_I: jax.Array = per_item.starts(0)


def sec(options: SecOptions) -> base.Sampler:
    """Returns SEC, the self-evolving curriculum (arXiv 2505.14970): a bandit over categories.

    Each slot of a batch draws a category from softmax(Q / temperature), with replacement, and takes the next
    item of a shuffled pass over that category. The reward r of a category is the mean |advantage| of its
    answers, and Q <- Q + learning_rate (r - Q): Algorithm 1 and Eq. 5. The paper's advantages are divided by
    the standard deviation of the group, which is the default of the loop.

    Departures from the paper:
    - No item occurs twice in a batch. If a category gets more slots than it has items, the rest go to random
      categories that still have items.
    - A category without a valid answer counts as not drawn. It keeps its Q, as in the paper; the code moves
      the Q of every category that was not drawn towards 0.
    """

    def init(num_items: int, *, category: Array | None = None) -> SecState:
        category_I, num_categories = per_item.categories("sec", category, num_items)
        value_A = np.zeros(num_categories, np.float32)
        return per_item.begin(SecState, num_items, value_A=value_A, category_I=category_I)

    def propose(state: SecState, key: jax.Array, num_prompts: int) -> types.Proposal:
        ranking.check_num_prompts(num_prompts, len(state.visits_I))
        arm_key, luck_key, tie_key = jax.random.split(key, 3)
        size_A = jnp.bincount(state.category_I, length=len(state.value_A))
        logit_A = state.value_A / options.temperature
        count_A = slots(arm_key, logit_A, size_A, num_prompts)
        # New random numbers in every step reshuffle the rest of each pass, so no permutation is stored.
        luck_I = jax.random.uniform(luck_key, state.visits_I.shape)
        rank_I = rank_in_category(luck_I, state.category_I, state.visits_I)
        chosen_I = (rank_I < count_A[state.category_I]).astype(jnp.float32)
        index_M = jax.random.permutation(tie_key, jax.lax.top_k(chosen_I, num_prompts)[1])
        return ranking.same_num_rollouts(index_M, options.num_rollouts)

    def update(state: SecState, feedback: types.Feedback) -> SecState:
        arm_N = state.category_I[feedback.index_M][feedback.group_N]
        of_arms = jnp.abs(feedback.advantage_N), arm_N, feedback.valid_N
        return state.replace(
            value_A=per_item.moved_to_means(state.value_A, options.learning_rate, *of_arms),
            visits_I=state.visits_I.at[feedback.index_M].add(1),
        )

    needs = base.Needs(items=(base.PerItem("category", "required"),))
    return base.compiled(init, propose, update, needs=needs)


SEC = base.Spec("sec", SecOptions, sec, goes_with=per_item.WITH_CATEGORY)


def slots(key: jax.Array, logit_A: Array, size_A: Array, num_prompts: int) -> jax.Array:
    """Returns how many of `num_prompts` slots each category gets, at most the number of its items.

    Slots are drawn from the softmax of `logit_A`. Those that do not fit are drawn again, uniformly over the
    categories with free items. A category with value NaN gets a slot only if no other has free items.
    """
    # -1e9, not -inf: if only NaN categories have free items, a softmax of only -inf would be NaN.
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


def rank_in_category(luck_I: Array, category_I: Array, visits_I: Array) -> jax.Array:
    """Returns each item's rank (from 0) in its category: the least visited first, then by luck."""
    first_I = jnp.searchsorted(jnp.sort(category_I), category_I).astype(jnp.int32)
    return ranking.places(luck_I, visits_I, category_I) - first_I


# ------------------------------------------------------------------------------ strata
@chex.dataclass(frozen=True)
class StrataState(types.Pytree):
    """The pass rate of each of the A categories, from the latest pass."""

    rate_A: Array  # float32
    category_I: Array  # int32


def strata(options: base.Options) -> base.Sampler:
    """Returns strata: a control that learns the pass rate of every category from passes over all items.

    It is not from a paper. It shows what a selector could gain if it knew how hard each kind of prompt is
    now. Passes (`Collector.measure`) measure the mean pass rate p of each category; between passes nothing is
    learned. Items are drawn without replacement in proportion to p (1 - p), the variance of one answer.
    So categories with mixed answers fill the batch, and none of them is left out.

    The estimate of p adds half a right and half a wrong answer (Jeffreys' prior). Twenty wrong answers do
    not show that p is 0, and a category of weight 0 would never be drawn again, even if the policy could
    learn it later.
    """

    def init(
        num_items: int, *, category: Array | None = None, pass_rate: Array | None = None
    ) -> StrataState:
        # Before the first pass all categories have the same pass rate, so all items are equally likely.
        pass_rate = np.full(num_items, 0.5) if pass_rate is None else pass_rate
        category_I, _ = per_item.categories("strata", category, num_items)
        rate_I = per_item.rates("strata", "pass_rate", pass_rate, num_items)
        rate_A = _rate(np.bincount(category_I, rate_I), np.bincount(category_I))
        return StrataState(rate_A=rate_A.astype(np.float32), category_I=category_I)

    def propose(state: StrataState, key: jax.Array, num_prompts: int) -> types.Proposal:
        log_weight_I = jnp.log(state.rate_A * (1 - state.rate_A))[state.category_I]
        keys, p_I = rng.selection_keys(key), state.rate_A[state.category_I]
        return ranking.drawn(log_weight_I, keys, num_prompts, options.num_rollouts, p_I)

    def update(state: StrataState, feedback: types.Feedback) -> StrataState:
        if not base.is_pass(feedback, len(state.category_I)):
            return state
        arm_M = state.category_I[feedback.index_M]

        def total(x_M: Array) -> jax.Array:
            return jax.ops.segment_sum(x_M, arm_M, len(state.rate_A))

        right_A, asked_A = total(feedback.successes_M), total(feedback.trials_M)
        rate_A = jnp.where(asked_A > 0, _rate(right_A, asked_A), state.rate_A)
        return StrataState(rate_A=rate_A, category_I=state.category_I)

    items = base.PerItem("category", "required"), base.PerItem("pass_rate", "measured")
    return base.compiled(init, propose, update, needs=base.Needs(items=items))


def _rate(right_A: Array, asked_A: Array) -> Array:
    return (right_A + 0.5) / (asked_A + 1)


# One answer per item is enough to measure a category of hundreds.
PASSES = {"measure.every": 10, "measure.num_rollouts": 1}
STRATA = base.Spec("strata", base.Options, strata, goes_with=per_item.WITH_CATEGORY | PASSES)
