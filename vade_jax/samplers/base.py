"""The selector contract: four pure functions over a frozen pytree of arrays.

A new selector is one file with a `make(**hyperparameters) -> Sampler`, one line in `SAMPLERS`
and one test. Its state is a frozen dataclass of arrays; whatever is static lives in `make`'s
closure.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from vade_jax import types
from vade_jax.samplers import checks
from vade_jax.types import Array

State = Any  # a frozen dataclass of arrays


class Sampler(NamedTuple):
    """What the training loop knows of a selector.

    init: (num_items) -> state
    propose: (state, key, num_prompts) -> Proposal; `num_prompts` is static
    keep: (state, feedback) -> keep_M, the groups to train on
    update: (state, feedback) -> state
    needs: arguments of `init`, one value an item, that have to be given
    measures: arguments of `init` that may be left out where a pass over all items measures them
    """

    init: Callable[..., State]
    propose: Callable[[State, jax.Array, int], types.Proposal]
    keep: Callable[[State, types.Feedback], jax.Array]
    update: Callable[[State, types.Feedback], State]
    needs: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()


# ------------------------------------------------------------------------------ choosing
def top_b(
    score_I: Array,
    key: jax.Array,
    num_prompts: int,
    *,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> jax.Array:
    """Returns the `num_prompts` items of highest score, in random order, without duplicates.

    `key` decides which of several tied items get in, and the order: mini-batches cut from it
    are alike. NaN loses against every number. With a mesh, scores are sharded over its `axis`:
    each shard finds its own best, and the best of those are taken; the result is the same.
    """
    chex.assert_rank(score_I, 1)
    num_items = len(score_I)
    checks.num_prompts(num_prompts, num_items)
    score_I = jnp.where(jnp.isnan(score_I), -jnp.inf, score_I)
    tie_key, order_key = jax.random.split(key)
    random_I = jax.random.uniform(tie_key, (num_items,))
    # A minimum, not [-1]: XLA on CPU turns a slice of top_k into a sort of all items, 211 ms for 1 M.
    threshold = jnp.min(score_I[_top_k(score_I, num_prompts, mesh, axis)])
    # Above the threshold: all, in [1, 2). At it: the luckiest, in [0, 1). Below: none.
    rank_I = jnp.where(score_I == threshold, random_I, -1.0)
    rank_I = jnp.where(score_I > threshold, 1 + random_I, rank_I)
    index_M = _top_k(rank_I, num_prompts, mesh, axis)
    return jax.random.permutation(order_key, index_M)


def _top_k(
    x_I: Array, k: int, mesh: jax.sharding.Mesh | None, axis: str | None
) -> jax.Array:
    """Returns the int32 indices of the k largest; local, then global, on a mesh."""
    if mesh is None:
        return jax.lax.top_k(x_I, k)[1]
    num_shards = mesh.shape[axis]
    if len(x_I) % num_shards:
        raise ValueError(
            f"{len(x_I)} items do not divide over the {num_shards} shards of mesh axis"
            f" {axis!r}: replicate the selector's state (mesh=None), or drop or add"
            f" {len(x_I) % num_shards} items"
        )
    spec, local_size = jax.P(axis), len(x_I) // num_shards

    def local_top_k(x_I):
        value_K, index_K = jax.lax.top_k(x_I, min(k, local_size))
        return value_K, index_K + jax.lax.axis_index(axis) * local_size

    value_C, index_C = jax.shard_map(
        local_top_k, mesh=mesh, in_specs=spec, out_specs=spec
    )(x_I)
    # Few are left, k a shard: from here on every device holds all of them.
    replicated = jax.sharding.NamedSharding(mesh, jax.P())
    value_C, index_C = jax.lax.with_sharding_constraint((value_C, index_C), replicated)
    return index_C[jax.lax.top_k(value_C, k)[1]]


def mix_uniform(
    score_I: Array,
    key: jax.Array,
    num_uniform: int,
    *,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> jax.Array:
    """Returns the scores with +inf for `num_uniform` items, each as likely as any other.

    NaN stays, where that many others exist.
    """
    if num_uniform == 0:
        return score_I
    even_I = jnp.where(jnp.isnan(score_I), score_I, 0.0)
    num_uniform = min(num_uniform, len(score_I))
    index_M = top_b(even_I, key, num_uniform, mesh=mesh, axis=axis)
    return score_I.at[index_M].set(jnp.inf)


def same_num_rollouts(index_M: Array, num_rollouts: int) -> types.Proposal:
    """Returns the proposal that asks for the same number of answers to every prompt."""
    num_M = jnp.full(index_M.shape, num_rollouts, jnp.int32)
    return types.Proposal(index_M=index_M, num_rollouts_M=num_M)


# ------------------------------------------------------------------------------ keeping
def keep_all(state: State, feedback: types.Feedback) -> jax.Array:
    """Returns True for every group: the `keep` of a selector that filters nothing."""
    del state
    return jnp.ones(feedback.index_M.shape, bool)


def keep_mixed(state: State, feedback: types.Feedback) -> jax.Array:
    """Returns True for groups of right and wrong answers: 0 < successes < trials."""
    del state
    return (feedback.successes_M > 0) & (feedback.successes_M < feedback.trials_M)


def keep_varied(state: State, feedback: types.Feedback) -> jax.Array:
    """Returns True for groups whose training rewards are not all equal: some advantage is not 0."""
    del state
    num_groups, valid_N = len(feedback.index_M), feedback.valid_N
    low_N = jnp.where(valid_N, feedback.reward_N, jnp.inf)
    high_N = jnp.where(valid_N, feedback.reward_N, -jnp.inf)
    low_M = jax.ops.segment_min(low_N, feedback.group_N, num_groups)
    high_M = jax.ops.segment_max(high_N, feedback.group_N, num_groups)
    return low_M < high_M


KEEPS = {"all": keep_all, "mixed": keep_mixed, "varied": keep_varied}


# ------------------------------------------------------------------------------ assembling
def assemble(
    init: Callable[[int], State],
    propose: Callable[[State, jax.Array, int], types.Proposal],
    update: Callable[[State, types.Feedback], State],
    *,
    keep: Callable[[State, types.Feedback], jax.Array] = keep_all,
    mesh: jax.sharding.Mesh | None = None,
    axis: str | None = None,
) -> Sampler:
    """Returns the four functions compiled; on a mesh, `*_I` of the state lie over its `axis`."""

    def placed(function):
        return functools.wraps(function)(
            lambda *args, **kwargs: _place(function(*args, **kwargs), mesh, axis)
        )

    return Sampler(
        init=jax.jit(placed(init), static_argnames="num_items"),
        propose=jax.jit(propose, static_argnames="num_prompts"),
        keep=jax.jit(keep),
        update=jax.jit(placed(update)),
    )


def _place(state, mesh, axis):
    if mesh is None:
        return state
    place = lambda name: jax.P(axis) if name.endswith("_I") else jax.P()
    return type(state)(
        **{
            name: jax.lax.with_sharding_constraint(
                value, jax.sharding.NamedSharding(mesh, place(name))
            )
            for name, value in state.items()
        }
    )
