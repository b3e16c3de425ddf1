"""Pooled with one part changed, to find out which of them gains; the arms of a sweep are at the end."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np

from vade_jax import fields, rng
from vade_jax.samplers import base, beta, categories, per_item, ranking
from vade_jax.types import Array


@dataclasses.dataclass(frozen=True)
class PartsOptions(categories.PooledOptions):
    own: float = fields.fraction(1.0)  # what an item's own counts count as; 0: its category alone
    # "weighted": as in pooled; "top": the largest chances of a mixed group; "shuffled": categories as in
    # pooled, and in each the least visited items first
    draw: str = fields.choice("weighted", "top", "shuffled")
    even: bool = False  # all categories alike, whatever their pass rates


@chex.dataclass(frozen=True)
class PartsState(categories.PooledState):
    visits_I: Array


def selector(options):
    whole = categories.pooled(options)

    def init(num_items, **values):
        of_pooled = whole.init(num_items, **values)
        return PartsState(**of_pooled, visits_I=np.zeros(num_items, np.int32))

    def posterior(state):
        own = {"alpha_I": options.own * state.alpha_I, "beta_I": options.own * state.beta_I}
        return categories.posterior(state.replace(**own), options.strength)

    def propose(state, key, num_prompts):
        keys = rng.selection_keys(key)
        mixed_I = beta.prob_mixed(*posterior(state), options.num_rollouts)
        if options.even:
            size_A = jnp.bincount(state.category_I, length=len(state.right_A))
            mixed_I = 1 / size_A[state.category_I]
        score_I = ranking.gumbel_scores(jnp.log(mixed_I), keys.draw)
        if options.draw == "top":
            score_I = mixed_I
        if (
            options.draw == "shuffled"
        ):  # the best scores of a category go to its least visited items
            luck_I = jax.random.uniform(keys.ties, score_I.shape)
            by_need = jnp.lexsort((luck_I, state.visits_I, state.category_I))
            by_score = jnp.lexsort((-score_I, state.category_I))
            score_I = jnp.zeros_like(score_I).at[by_need].set(score_I[by_score])
        index_M = ranking.top_b(score_I, keys.ties, num_prompts)
        return ranking.same_num_rollouts(index_M, options.num_rollouts)

    def update(state, feedback):
        visits_I = state.visits_I.at[feedback.index_M].add(1)
        return whole.update(state, feedback).replace(visits_I=visits_I)

    def believe(state, proposal):
        alpha_I, beta_I = posterior(state)
        return beta.believe(state.replace(alpha_I=alpha_I, beta_I=beta_I), proposal)

    needs = base.Needs(items=(base.PerItem("category"),))
    return base.compiled(init, propose, update, believe=believe, needs=needs)


def spec(name, **changed):
    """Returns the entry whose options have other defaults."""
    parts = [(option, type(value), value) for option, value in changed.items()]
    options = dataclasses.make_dataclass(name, parts, bases=(PartsOptions,), frozen=True)
    category = {"selector.arrays": {"category": per_item.BY_CATEGORY}}
    return base.Spec(name, options, selector, goes_with=category)


NO_OWN = spec("no_own", own=0.0)
TOP = spec("top", draw="top")
NO_OWN_SHUFFLED = spec("no_own_shuffled", own=0.0, draw="shuffled")
EVEN = spec("even", draw="shuffled", even=True)
