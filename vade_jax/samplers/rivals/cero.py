"""CERO (arXiv 2606.05606): one price divides the answers of the entire run among the prompts.

A prompt with p(1-p) of q = E[p (1-p)] that gets z groups in a run of K steps, B groups each, gains

    U(q, z) = 1 - exp(-4 q z / R)                      R = K B / I, the groups that a prompt gets on average

The selector keeps for each prompt a slope theta, the gain of one more group, and for all a price nu of a
group. They begin at theta = 4 q and nu = 1/2, and a step does

    d = theta - nu                                     the margins; the B largest are rolled out
    n = 1 where d > 0, for 33/32 B of them at most     what would have been served, the batch first
    q <- E[p (1-p)] of Beta(alpha + 1, beta + 1)       with this step's answers
    x = log(4 q / theta) B / (4 q I)                   the share of the steps in which theta asks for it,
                                                       within [0, 1]
    theta <- theta - (n - x) / sqrt(K)                 both within [0, 1]
    nu <- nu - (1 - sum(n) / B) / sqrt(K)

The paper counts in half groups of 4 answers, of which a chosen prompt gets two; they cancel out. Its lambda
and rho, both 1, are left out.

Departures from the paper:
- A step has exactly B groups, even if some margins are not above 0. In the paper it has one for each
  positive margin, up to the capacity, so that the price also paces the run. Here the price decides only
  which slopes fall.
- K is an option; the paper's is the number of its steps. A pass over all items brings answers and is not a
  step.
"""

import dataclasses
import math

import chex
import jax
import jax.numpy as jnp

from vade_jax import fields, rng, types
from vade_jax.samplers import base, beta, per_item, ranking
from vade_jax.types import Array

# Groups that would be served at most, as a multiple of B; the paper's 132 of 128
CAPACITY = 33 / 32


@dataclasses.dataclass(frozen=True)
class CeroOptions(beta.CountingOptions):
    steps: int = fields.number(500, at_least=1)  # K, the steps of the run
    seed: int = fields.seed()  # Decides ties among what would have been served beyond the batch


@chex.dataclass(frozen=True)
class CeroState(beta.BetaState):
    """Counts, and what a group is worth."""

    slope_I: jax.Array = per_item.starts(0.0)  # theta
    price: jax.Array = per_item.starts(0.5)  # nu
    step: jax.Array = per_item.starts(0)


def selector(options: CeroOptions) -> base.Sampler:
    speed = 1 / math.sqrt(options.steps)

    def init(num_items: int, **prior: Array) -> CeroState:
        state = beta.begin(CeroState, options, num_items, **prior)
        return state.replace(slope_I=4 * variance(state))

    def propose(state: CeroState, key: jax.Array, num_prompts: int) -> types.Proposal:
        return ranking.best(state.slope_I, key, num_prompts, options.num_rollouts)

    def update(state: CeroState, feedback: types.Feedback) -> CeroState:
        num_items, num_prompts = len(state.slope_I), len(feedback.index_M)
        counted = beta.counted(state, feedback, decay_selected=1.0, decay_rest=1.0)
        if base.is_pass(feedback, num_items):
            return counted
        margin_I = state.slope_I - state.price
        most = min(math.ceil(CAPACITY * num_prompts), num_items)
        key = rng.own_key(options.seed, state.step)
        index_C = ranking.top_b(margin_I.at[feedback.index_M].set(jnp.inf), key, most)
        served_I = jnp.zeros(num_items).at[index_C].set(1) * (margin_I > 0)
        # A slope of 0 asks for every step, one of 4 q or more for none.
        q4_I = 4 * variance(counted)
        due_I = jnp.clip(jnp.log(q4_I / state.slope_I) * num_prompts / num_items / q4_I, 0, 1)
        surplus = 1 - jnp.sum(served_I) / num_prompts
        return counted.replace(
            slope_I=jnp.clip(state.slope_I - speed * (served_I - due_I), 0, 1),
            price=jnp.clip(state.price - speed * surplus, 0, 1),
            step=state.step + 1,
        )

    def believe(state: CeroState, proposal: types.Proposal) -> dict[str, Array]:
        price_M = jnp.full(proposal.index_M.shape, state.price)
        return {**beta.believe(state, proposal), "cero/price": price_M}

    return base.compiled(init, propose, update, believe=believe, needs=beta.NEEDS)


SPEC = base.Spec("cero", CeroOptions, selector)


def variance(state: CeroState) -> Array:
    """Returns q = E[p (1-p)] = a b / ((a + b) (a + b + 1)) of every Beta(a, b), a = alpha + 1."""
    a_I, b_I = state.alpha_I + 1, state.beta_I + 1
    return a_I * b_I / ((a_I + b_I) * (a_I + b_I + 1))
