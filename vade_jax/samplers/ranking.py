"""From the scores of all items to the B chosen ones."""

import math

import chex
import jax
import jax.numpy as jnp

from vade_jax import arrays, rng, types
from vade_jax.types import Array


def top_b(score_I: Array, key: jax.Array, num_prompts: int) -> jax.Array:
    """Returns the `num_prompts` items with the highest scores, in random order, without duplicates.

    NaN ranks below every number.

    Args:
        score_I: any floats, including infinities.
        key: decides which of several tied items get in, and the order. The order is random so that the
            mini-batches cut from it are alike.
        num_prompts: B, at most the number of items.

    Returns:
        int32 index_M.
    """
    chex.assert_rank(score_I, 1)
    num_items = len(score_I)
    check_num_prompts(num_prompts, num_items)
    score_I = arrays.padded(score_I, value=-jnp.inf)
    score_I = jnp.where(jnp.isnan(score_I), -jnp.inf, score_I)
    tie_key, order_key = jax.random.split(key)
    random_I = jax.random.uniform(tie_key, score_I.shape)
    # A minimum, not [-1]: XLA on CPU turns a slice of top_k into a sort of all items, 211 ms for 1 M.
    threshold = jnp.min(score_I[jax.lax.top_k(score_I, num_prompts)[1]])
    # top_k alone breaks ties by index, which would favour the start of the data set. So a second top_k
    # ranks items by a random number: in [1, 2) above the threshold, so that all get in; in [0, 1) at the
    # threshold; -1 below it. What fills up the array is never at the threshold, even at -inf.
    real_I = jnp.arange(len(score_I)) < num_items
    rank_I = jnp.where((score_I == threshold) & real_I, random_I, -1.0)
    rank_I = jnp.where(score_I > threshold, 1 + random_I, rank_I)
    index_M = jax.lax.top_k(rank_I, num_prompts)[1]
    return jax.random.permutation(order_key, index_M)


def check_num_prompts(num_prompts: int, num_items: int) -> None:
    if not 1 <= num_prompts <= num_items:
        raise ValueError(
            f"cannot choose {num_prompts} prompts from a data set of {num_items}:"
            f" set the prompts per step (B) to a value from 1 to {num_items}"
        )


def share_of(share: float, num_prompts: int) -> int:
    """Returns `share` x `num_prompts`, rounded down: 29 for 0.29 x 100. `share` may be above 1.

    In floats that product is 28.999999999999996, so 1e-6 is added before rounding.
    """
    return math.floor(share * num_prompts + 1e-6)


def places(*keys: Array) -> jax.Array:
    """Returns the rank of every entry, from 0, when sorted by the last key, then by the keys before it."""
    order_I = jnp.lexsort(keys)
    return jnp.zeros_like(order_I).at[order_I].set(jnp.arange(len(order_I)))


def least_visited(visits_I: Array) -> jax.Array:
    """Returns scores that rank the least visited items first, so that every epoch is a shuffled pass."""
    return (jnp.min(visits_I) - visits_I).astype(jnp.float32)


def gumbel_scores(log_weight_I: Array, key: jax.Array) -> Array:
    """Returns scores of which the B largest are a weighted draw without replacement (Gumbel top-k).

    A score is log w + Gumbel noise from `key`, which must differ from the key of `top_b`. The largest one
    is a draw in proportion to w, the next one such a draw among the other items, and so on. Weights need
    not sum to 1. An item of weight 0 (-inf) is only chosen if too few others exist; NaN stays NaN.
    """
    return log_weight_I + jax.random.gumbel(key, log_weight_I.shape)


def mix_uniform(score_I: Array, key: jax.Array, num_uniform: int) -> Array:
    """Returns the scores, with +inf for `num_uniform` items drawn uniformly; one with NaN is drawn last."""
    if num_uniform == 0:
        return score_I
    even_I = jnp.where(jnp.isnan(score_I), score_I, 0.0)
    index_M = top_b(even_I, key, min(num_uniform, len(score_I)))
    return jnp.asarray(score_I).at[index_M].set(jnp.inf)


def best(
    score_I: Array, key: jax.Array, num_prompts: int, num_rollouts: int, p_I: Array | None = None
) -> types.Proposal:
    """Returns the proposal of the `top_b`, with as many answers to each, and the pass rates of `p_I`."""
    proposal = same_num_rollouts(top_b(score_I, key, num_prompts), num_rollouts)
    return proposal if p_I is None else proposal.replace(p_M=p_I[proposal.index_M])


def drawn(
    log_weight_I: Array,
    keys: rng.SelectionKeys,
    num_prompts: int,
    num_rollouts: int,
    p_I: Array | None = None,
) -> types.Proposal:
    """Returns the proposal of a draw without replacement by weight, like `best`; see `gumbel_scores`."""
    score_I = gumbel_scores(log_weight_I, keys.draw)
    return best(score_I, keys.ties, num_prompts, num_rollouts, p_I)


def same_num_rollouts(index_M: Array, num_rollouts: int) -> types.Proposal:
    """Returns the proposal that asks for the same number of answers to every prompt."""
    num_M = jnp.full(index_M.shape, num_rollouts, jnp.int32)
    return types.Proposal(index_M=index_M, num_rollouts_M=num_M)
