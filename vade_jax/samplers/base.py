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
import numpy as np

from vade_jax import types
from vade_jax.samplers import beta, gaussian
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
    check_num_prompts(num_prompts, num_items)
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


# ------------------------------------------------------------------------------ looking
@jax.jit
def beliefs(state: State, proposal: types.Proposal) -> dict[str, jax.Array]:
    """Returns what the selector believes of the chosen prompts, one value a prompt.

    Empty for a state without Beta posteriors.
    """
    if not (hasattr(state, "alpha_I") and hasattr(state, "beta_I")):
        return {}
    alpha_M, beta_M = state.alpha_I[proposal.index_M], state.beta_I[proposal.index_M]
    return {
        "alpha": alpha_M,
        "beta": beta_M,
        "posterior_mean": beta.posterior_mean(alpha_M, beta_M),
        "prob_mixed": beta.prob_mixed(alpha_M, beta_M, proposal.num_rollouts_M),
    }


def diagnostics(state: State, proposal: types.Proposal) -> types.Metrics:
    """Returns the metrics of `beliefs`: call it with the state that made the proposal.

    `vade/predicted_effective_ratio` is then a forecast, made before the rollouts. Difficulties are
    those of a plan: of the problems, and of the variants that were made of them.
    """
    if proposal.difficulty_M is not None:
        return _difficulties(proposal)
    if hasattr(state, "mean_I") and hasattr(state, "var_I"):
        belief = _logit_beliefs(state, proposal)
    else:
        belief = beliefs(state, proposal)
    names = {
        "vade/posterior_mean": "posterior_mean",
        "vade/predicted_effective_ratio": "prob_mixed",
    }
    return {k: jnp.mean(belief[name]) for k, name in names.items() if belief}


def _difficulties(proposal):
    variant_M = np.asarray(proposal.variant_M)
    difficulty_M = np.asarray(proposal.difficulty_M)
    names = {"problems": variant_M == 0, "variants": variant_M > 0}
    return {
        f"diva/difficulty_{name}": float(difficulty_M[is_one].mean())
        for name, is_one in names.items()
        if is_one.any()
    }


@jax.jit
def _logit_beliefs(state, proposal):
    mean_M, var_M = state.mean_I[proposal.index_M], state.var_I[proposal.index_M]
    num_M = proposal.num_rollouts_M
    return {
        "posterior_mean": gaussian.posterior_mean(mean_M, var_M),
        "prob_mixed": gaussian.prob_mixed(mean_M, var_M, num_M),
    }


# ------------------------------------------------------------------------------ hyperparameters
def check_num_rollouts(num_rollouts: int) -> None:
    """Raises ValueError unless a group has at least two answers."""
    if num_rollouts < 2:
        raise ValueError(
            f"num_rollouts={num_rollouts}: one answer cannot be compared with its group;"
            " set num_rollouts to at least 2"
        )


def check_num_prompts(num_prompts: int, num_items: int) -> None:
    """Raises ValueError unless so many different items exist."""
    if not 1 <= num_prompts <= num_items:
        raise ValueError(
            f"cannot choose {num_prompts} prompts of a data set of {num_items}:"
            f" set the prompts per step (B) to a value from 1 to {num_items}"
        )


def check_per_item(
    method: str, name: str, values: Any, num_items: int, hint: str = ""
) -> None:
    """Raises ValueError unless `values` has one entry for each of `num_items` items."""
    if values is None:
        raise ValueError(
            f"{method} needs the {name} of every item:"
            f" call init({num_items}, {name}=...) with {num_items} values{hint}"
        )
    if np.shape(values) != (num_items,):
        raise ValueError(
            f"{name} has shape {np.shape(values)}: give one value for each of the"
            f" {num_items} items"
        )


def check_option(name: str, value: Any, options: Any) -> None:
    """Raises ValueError unless `value` is one of `options`."""
    if value not in options:
        raise ValueError(f"{name}={value!r}: choose one of {sorted(options)}")


def check_fraction(name: str, value: float) -> None:
    """Raises ValueError unless `value` lies in [0, 1]."""
    check_range(name, value, 0, 1)


def check_range(name: str, value: float, low: float, high: float) -> None:
    """Raises ValueError unless `value` lies in [low, high]."""
    if not low <= value <= high:
        raise ValueError(f"{name}={value}: set it to a value from {low} to {high}")


def check_at_least(name: str, value: float, low: float) -> None:
    """Raises ValueError unless `value` is finite and at least `low`."""
    if not low <= value < float("inf"):
        raise ValueError(f"{name}={value}: set it to at least {low}")


def check_positive(name: str, value: float) -> None:
    """Raises ValueError unless `value` is finite and above 0."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name}={value}: set it to a value above 0")
