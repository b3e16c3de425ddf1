"""The decode loop: prompts prefilled once, every answer one token a step, until all have ended.

`answers` is one jitted program a shape. The second half draws tokens from logits and gives their exact
log-probs under the distribution drawn from.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from vade_jax.models import logprobs
from vade_jax.rollout.engine import Sampling
from vade_jax.types import Array, Params, Prompts


def answers(
    merge: Callable[[Params], Any],
    params: Params,
    prompts: Prompts,
    group_R: jax.Array | None,
    answer_N: jax.Array,
    key: jax.Array,
    *,
    sampling: Sampling,
    stop_ids: tuple[int, ...],
    banned_ids: tuple[int, ...],
    sharding: NamedSharding | None = None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Returns `token_NT, logp_NT, length_N, finished_N` for answers laid out in rows.

    N = R x (answers a row); the rows of one prompt share its keys and values.

    Args:
        merge: params -> a model with `prefill`, `own_cache`, `decode` and `head`.
        params: the weights.
        prompts: the prompts of the rows.
        group_R: prompt of each row; None: row r is prompt r's.
        answer_N: number of the answer that each slot makes; -1 for a slot without one.
        key: decides every draw, together with `answer_N` and the token's place.
        sampling: temperature, truncation and the longest answer.
        stop_ids: tokens that end an answer; the first also fills what follows the end.
        banned_ids: tokens that are never drawn.
        sharding: how the answers and all that is kept of them is split; None: not.
    """
    model = merge(params)
    N, T = answer_N.shape[0], sampling.max_tokens
    split = functools.partial(_split, sharding)
    hidden_RD, rows = model.prefill(prompts)
    if group_R is not None:
        # Outside the loop: a gather of the prompt's cache in every step would read it twice.
        hidden_RD, rows = hidden_RD[group_R], rows.take(group_R)
    # By the answer's own number, not its slot: answers do not depend on how they are batched.
    key_N = jax.vmap(jax.random.fold_in, (None, 0))(key, answer_N)
    stop = jnp.array(stop_ids, jnp.int32)

    def step(carry):
        t, hidden_ND, own, token_NT, logp_NT, length_N, done_N = carry
        logits_NV = logprobs.logits(hidden_ND, model.head(), banned=banned_ids)
        token_N, logp_N = draw(
            jax.vmap(jax.random.fold_in, (0, None))(key_N, t),
            logits_NV,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
        )
        # Answers that have ended are decoded on, as shapes are fixed; nothing of it is kept.
        token_N = jnp.where(done_N, stop[0], token_N)
        token_NT = token_NT.at[:, t].set(token_N)
        logp_NT = logp_NT.at[:, t].set(jnp.where(done_N, 0, logp_N))
        length_N = length_N + ~done_N  # the end token counts
        done_N = done_N | jnp.isin(token_N, stop)
        hidden_ND, own = model.decode(rows, own, token_N, t)
        return t + 1, hidden_ND, own, token_NT, logp_NT, length_N, done_N

    def unfinished(carry):
        t, *_, done_N = carry
        return (t < T) & ~jnp.all(done_N)

    start = (
        jnp.int32(0),
        split(jnp.repeat(hidden_RD, N // hidden_RD.shape[0], axis=0)),
        # [layer, answer, ...]. The carry's shardings are those of `start` for the whole loop, so
        # they are set here: XLA would replicate what begins as zeros.
        jax.tree.map(functools.partial(split, axis=1), model.own_cache(N, T)),
        split(jnp.full((N, T), stop_ids[0], jnp.int32)),
        split(jnp.zeros((N, T), jnp.float32)),
        split(jnp.zeros(N, jnp.int32)),
        answer_N < 0,  # empty slots do not hold up the others
    )
    end = jax.lax.while_loop(unfinished, step, start)
    *_, token_NT, logp_NT, length_N, done_N = end
    return token_NT, logp_NT, length_N, done_N


def _split(sharding, x, axis=0):
    """Splits `x` along `axis` as the answers are; its other axes follow the weights."""
    if sharding is None:
        return x
    spec = [P.UNCONSTRAINED] * x.ndim
    spec[axis] = sharding.spec[0]
    return jax.lax.with_sharding_constraint(x, NamedSharding(sharding.mesh, P(*spec)))


# ----------------------------------------------------------------------- tokens from logits
def draw(
    key_N: Array, logits_NV: Array, *, temperature: float, top_p: float, top_k: int
) -> tuple[jax.Array, jax.Array]:
    """Returns `token_N` and `logp_N`, each row from its own key.

    `logp_N` is under the tempered, truncated and renormalised distribution, so it is the behaviour
    policy's. At temperature 0 the most likely token is taken and its log-prob is at temperature 1.
    """
    if temperature == 0:
        token_N = jnp.argmax(logits_NV, -1)
        return token_N, _take(jax.nn.log_softmax(logits_NV), token_N)
    logp_NV = jax.nn.log_softmax(truncate(logits_NV / temperature, top_p, top_k))
    uniform_N = jax.vmap(lambda key: jax.random.uniform(key))(key_N)
    token_N = inverse_cdf(uniform_N, jnp.exp(logp_NV))
    return token_N, _take(logp_NV, token_N)


def inverse_cdf(uniform_N: Array, prob_NV: Array) -> jax.Array:
    """Returns the token whose slice of the cumulative distribution holds the uniform draw.

    One random number a row, where `jax.random.categorical` draws V Gumbels. A token of probability
    0 is never taken.
    """
    cdf_NV = jnp.cumsum(prob_NV, -1)
    # In float32 the sum is not quite 1, and differs by a rounding after the last token that can be drawn:
    # scaled by what is reached there, a draw near 1 stays inside.
    total_N = jnp.max(jnp.where(prob_NV > 0, cdf_NV, 0), -1)
    threshold_N = uniform_N * total_N
    return jnp.argmax((cdf_NV > threshold_N[:, None]) & (prob_NV > 0), -1)


def truncate(logits_NV: Array, top_p: float, top_k: int) -> Array:
    """Returns the logits with all but the top k, then all but the nucleus of mass p, at -inf."""
    if top_k:
        kth_N1 = jax.lax.top_k(logits_NV, min(top_k, logits_NV.shape[-1]))[0][:, -1:]
        logits_NV = jnp.where(logits_NV >= kth_N1, logits_NV, -jnp.inf)
    if top_p < 1:
        prob_NV = jax.nn.softmax(logits_NV)
        keep_NV = prob_NV >= nucleus_threshold(prob_NV, top_p)[:, None]
        logits_NV = jnp.where(keep_NV, logits_NV, -jnp.inf)
    return logits_NV


def nucleus_threshold(prob_NV: Array, top_p: float) -> jax.Array:
    """Returns the largest probability so that the tokens at or above it hold mass >= top_p.

    Bisection on the float's bits, 31 sums over the row, instead of a sort of the vocabulary:
    non-negative floats are ordered as their bit patterns are. It finds the exact float.
    """

    def halve(_, bounds):
        low_N, high_N = bounds  # mass(low) >= top_p > mass(high)
        middle_N = low_N + (high_N - low_N) // 2  # low + high would overflow
        threshold_N = jax.lax.bitcast_convert_type(middle_N, jnp.float32)
        mass_N = jnp.sum(jnp.where(prob_NV >= threshold_N[:, None], prob_NV, 0), -1)
        enough_N = mass_N >= top_p
        return (
            jnp.where(enough_N, middle_N, low_N),
            jnp.where(enough_N, high_N, middle_N),
        )

    low_N = jnp.zeros(prob_NV.shape[0], jnp.int32)
    above_one = jax.lax.bitcast_convert_type(jnp.float32(1.5), jnp.int32)
    low_N, _ = jax.lax.fori_loop(0, 31, halve, (low_N, low_N + above_one))
    return jax.lax.bitcast_convert_type(low_N, jnp.float32)


def _take(x_NV, token_N):
    return jnp.take_along_axis(x_NV, token_N[:, None], -1)[:, 0]
