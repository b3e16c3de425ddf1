"""Your own selector: rows in the order of the file, without mastered ones."""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields
from vade_jax.samplers import base, ranking


@chex.dataclass(frozen=True)
class InOrderState:
    rate_I: jax.Array  # share of right answers at the latest visit


@dataclasses.dataclass(frozen=True)
class InOrderOptions(base.Options):
    mastered: float = fields.fraction(0.9)


def selector(options):
    def init(num_items):
        return InOrderState(rate_I=jnp.zeros(num_items))

    def propose(state, key, num_prompts):
        place_I = jnp.arange(len(state.rate_I))
        score_I = jnp.where(state.rate_I < options.mastered, -place_I, -jnp.inf)
        index_M = ranking.top_b(score_I, key, num_prompts)
        return ranking.same_num_rollouts(index_M, options.num_rollouts)

    def update(state, feedback):
        rate_M = feedback.successes_M / jnp.maximum(feedback.trials_M, 1)
        return InOrderState(rate_I=state.rate_I.at[feedback.index_M].set(rate_M))

    return base.compiled(init, propose, update)


SPEC = base.Spec("in_order", InOrderOptions, selector)
