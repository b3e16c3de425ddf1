"""Pooled: the items of a category share their counts, and a batch is a weighted draw, not a top B.

This selector is from this project, not from a paper. In a few epochs an item is visited only a few times,
so its own counts say little, and are out of date by the next visit. But the pass rates of the items in a
category, such as a family and level or a data set, mostly move together. With m the recent pass rate of an
item's category and a, b its own decayed counts, the posterior of its pass rate is

    p ~ Beta(s m + a, s (1 - m) + b)                  the category counts as s = `strength` answers

and a batch is drawn without replacement in proportion to V = E[1 - p^G - (1-p)^G], the chance of a mixed
group, as in MaPP (arXiv 2609.34990). The counts of a category fade fast, at every step. So a category that
looked solved or hopeless is unknown again after a while, and a few of its items are tried. No item is ever
excluded for good, because V is always above 0.

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

PRIOR = 1.0  # answers, half of them right, that are added to the counts of every category


@dataclasses.dataclass(frozen=True)
class PooledOptions(beta.CountingOptions):
    strength: float = fields.number(4.0, above=0)  # s, answers that a category counts as
    memory: float = fields.fraction(0.9)  # What is left of every category's counts after a step
    # What is left of a chosen item's own counts after a step
    decay_selected: float = fields.fraction(0.5)
    # What is left of any other item's own counts after a step
    decay_rest: float = fields.fraction(0.98)


@chex.dataclass(frozen=True)
class PooledState(beta.BetaState):
    """Decayed counts of right and wrong answers, of every item and of each of the A categories."""

    right_A: Array  # float32, right answers in the category
    wrong_A: Array  # float32, wrong answers in the category
    category_I: Array  # int32


def selector(options: PooledOptions) -> base.Sampler:
    """Returns the pooled selector; `init` takes the category of every item, and known pass rates."""
    decays = {"decay_selected": options.decay_selected, "decay_rest": options.decay_rest}

    def init(
        num_items: int, *, category: Array | None = None, pass_rate: Array | None = None
    ) -> PooledState:
        if category is None:
            category = np.zeros(num_items, np.int32)
        category_I, num_categories = per_item.categories("pooled", category, num_items)
        zero_A = np.zeros(num_categories, np.float32)
        of_categories = {"right_A": zero_A, "wrong_A": zero_A, "category_I": category_I}
        return beta.begin(PooledState, options, num_items, pass_rate=pass_rate, **of_categories)

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


SPEC = base.Spec("pooled", PooledOptions, selector, goes_with=per_item.WITH_CATEGORY)


def posterior(state: PooledState, strength: float) -> tuple[Array, Array]:
    """Returns alpha_I and beta_I of Beta(alpha + 1, beta + 1), the posterior of every pass rate."""
    asked_A = state.right_A + state.wrong_A
    rate_I = ((state.right_A + PRIOR / 2) / (asked_A + PRIOR))[state.category_I]
    # The category is the prior here. It replaces the +1 of VADE's posterior, hence the -1.
    return state.alpha_I + strength * rate_I - 1, state.beta_I + strength * (1 - rate_I) - 1
