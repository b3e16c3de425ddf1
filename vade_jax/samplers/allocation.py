"""Sharing a budget of answers among prompts, one after the other to where it adds most.

A prompt's answers are cells of a row: cell g stands for answer g + 1. Of N answers to a prompt with
pass rate p, Value(N) = (1 - p^N - (1-p)^N) p (1-p)^2 (Knapsack RL, arXiv 2509.25849) is concave in N
from 1 on, so filling the cells of largest gain solves the knapsack exactly.
"""

import jax
import jax.numpy as jnp
from jax.scipy.special import betaln

from vade_jax.types import Array

WITHIN, ALL_WRONG, REST, BEYOND, CLOSED = range(
    5
)  # the cells that are filled first, next, ...


# ------------------------------------------------------------------------------ value
def gain(p_M: Array, max_rollouts: int) -> jax.Array:
    """Returns Value(N + 1) - Value(N) for N = 0 ... max_rollouts - 1; decreasing from N = 1 on."""
    p_MG, n_G = p_M[:, None], jnp.arange(max_rollouts)
    first_MG = p_MG**n_G * (1 - p_MG) + (1 - p_MG) ** n_G * p_MG
    return first_MG * p_MG * (1 - p_MG) ** 2


def expected_gain(alpha_M: Array, beta_M: Array, max_rollouts: int) -> jax.Array:
    """Returns E[gain] under Beta(alpha + 1, beta + 1), in closed form.

    With a = alpha + 1, b = beta + 1: (B(a+N+1, b+3) + B(a+2, b+N+2)) / B(a, b).
    """
    a_MG, b_MG = alpha_M[:, None] + 1, beta_M[:, None] + 1
    n_G, whole_MG = jnp.arange(max_rollouts), betaln(a_MG, b_MG)
    right_MG = jnp.exp(betaln(a_MG + n_G + 1, b_MG + 3) - whole_MG)
    wrong_MG = jnp.exp(betaln(a_MG + 2, b_MG + n_G + 2) - whole_MG)
    return right_MG + wrong_MG


def usable(
    p_M: Array, mixed_M: Array, confidence: float, max_rollouts: int
) -> jax.Array:
    """Returns how many answers the mixed prompts can use, each to see both outcomes."""
    likely_M = jnp.where(mixed_M, jnp.maximum(p_M, 1 - p_M), 0.5)
    need_M = jnp.floor(jnp.log1p(-confidence) / jnp.log(likely_M))
    return jnp.sum(jnp.where(mixed_M, jnp.minimum(need_M, max_rollouts), 0))


# ------------------------------------------------------------------------------ filling
def fill_order(
    gain_MG: Array, low_M: Array, mixed_M: Array, wrong_M: Array, useful: Array
) -> jax.Array:
    """Returns in which order cells are filled: the `useful` best of the mixed prompts first."""
    free_MG = jnp.arange(gain_MG.shape[1]) >= low_M[:, None]
    candidate_MG = jnp.where(free_MG & mixed_M[:, None], gain_MG, -jnp.inf)
    place_MG = places(-candidate_MG.ravel()).reshape(gain_MG.shape)
    mixed_MG = jnp.where(place_MG < useful, WITHIN, BEYOND)
    other_M = jnp.where(wrong_M, ALL_WRONG, REST)
    return jnp.where(mixed_M[:, None], mixed_MG, other_M[:, None])


def fill(gain_MG: Array, low_M: Array, order_MG: Array, budget: int) -> jax.Array:
    """Returns int32 num_rollouts_M that add up to `budget`.

    Cell (m, n) stands for the answer n + 1 to prompt m. The first `low_M` are given; the rest of
    the budget fills cells by `order_MG`, within it by gain.
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
