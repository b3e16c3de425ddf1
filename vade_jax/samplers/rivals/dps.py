"""DPS (arXiv 2603.10887): every prompt is a Markov chain over three levels; the likeliest mixed ones win.

The group of a prompt is all wrong, mixed or all right: levels 0, 1, 2. For each prompt, DPS learns how the
level moves from step to step. It counts the moves in a 3 x 3 matrix a (to, from), a Dirichlet posterior
whose mean Phi is a with each column divided by its sum. With f the probabilities of the levels before a
step and mu = Phi f their forecast, a step sets

    rolled out    f' = the level seen, a <- decay a + (1 - decay) + xi, xi = f'_i Phi_ij f_j over its sum
    the rest      f' = mu,             a <- decay a + (1 - decay)

and the B prompts with the largest forecast of "mixed", (Phi f')_1, are rolled out next. The decay of the
counts makes DPS explore: with the default, a prompt that was not seen for three steps is nearly as unknown
as at the start.

The equations are from the authors' public code; of the paper we have read only the abstract.

Departures from the code:
- The code scores random candidates, in its scripts as many as there are prompts. Here all items compete.
- Ties, such as those in the first steps, are broken at random.
- The entropy bonus, which is off in the code, is left out.
- A prompt without valid answers is treated as one of the rest.
"""

import dataclasses

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, types
from vade_jax.samplers import base, ranking
from vade_jax.types import Array

WRONG, MIXED, RIGHT = range(3)


@dataclasses.dataclass(frozen=True)
class DpsOptions(base.Options):
    # lambda, what a step leaves of the distance between every transition count and its prior, 1 (the
    # code: 0.5 for countdown and geometry, 0.7 for mathematics)
    decay: float = fields.fraction(0.5)


@chex.dataclass(frozen=True)
class DpsState(types.Pytree):
    """The level of every item after the last step, and the counts of its moves."""

    belief_I3: jax.Array  # float32, f, the probability of each level
    count_I33: jax.Array  # float32, a, moves to a level (row) from a level (column)


def selector(options: DpsOptions) -> base.Sampler:
    decay = options.decay

    def init(num_items: int) -> DpsState:
        even_I3 = jnp.full((num_items, 3), 1 / 3, jnp.float32)
        return DpsState(belief_I3=even_I3, count_I33=jnp.ones((num_items, 3, 3), jnp.float32))

    def propose(state: DpsState, key: jax.Array, num_prompts: int) -> types.Proposal:
        mixed_I = forecast(state.count_I33, state.belief_I3)[:, MIXED]
        return ranking.best(mixed_I, key, num_prompts, options.num_rollouts)

    def update(state: DpsState, feedback: types.Feedback) -> DpsState:
        index_M, seen_M = feedback.index_M, feedback.trials_M > 0
        belief_I3 = forecast(state.count_I33, state.belief_I3)
        count_I33 = decay * state.count_I33 + (1 - decay)
        level_M3 = jax.nn.one_hot(base.outcome(feedback) + MIXED, 3)
        # xi: the probability of each move given the observed level, by the estimates before this step
        before_M33 = transitions(state.count_I33[index_M])
        moved_M33 = level_M3[:, :, None] * before_M33 * state.belief_I3[index_M][:, None, :]
        moved_M33 = moved_M33 / jnp.sum(moved_M33, (1, 2), keepdims=True)
        level_M3 = jnp.where(seen_M[:, None], level_M3, belief_I3[index_M])
        moved_M33 = jnp.where(seen_M[:, None, None], moved_M33, 0)
        return DpsState(
            belief_I3=belief_I3.at[index_M].set(level_M3),
            count_I33=count_I33.at[index_M].add(moved_M33),
        )

    return base.compiled(init, propose, update, believe=believe)


SPEC = base.Spec("dps", DpsOptions, selector)


def transitions(count_I33: Array) -> Array:
    """Returns Phi, the mean transition probabilities; every column sums to 1."""
    return count_I33 / jnp.sum(count_I33, axis=1, keepdims=True)


def forecast(count_I33: Array, belief_I3: Array) -> jax.Array:
    """Returns mu, the probability of each level in the next step."""
    return jnp.einsum("iab,ib->ia", transitions(count_I33), belief_I3)


def believe(state: DpsState, proposal: types.Proposal) -> dict[str, jax.Array]:
    """Returns the forecast of "mixed". It has no posterior mean: levels do not determine a pass rate."""
    index_M = proposal.index_M
    level_M3 = forecast(state.count_I33[index_M], state.belief_I3[index_M])
    return {"prob_mixed": level_M3[:, MIXED]}
