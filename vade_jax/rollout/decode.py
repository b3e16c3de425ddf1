"""The decode loop: prompts prefilled once, every answer one token a turn, until all have ended."""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from vade_jax.models import logprobs
from vade_jax.rollout import sampling as draws
from vade_jax.rollout.engine import Sampling
from vade_jax.types import Params, Prompts


def answers(
    merge: Callable[[Params], object],
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

    Args:
        merge: params -> model.
        params: the weights.
        prompts: the prompts of the rows.
        group_R: prompt of each row; None: row r is prompt r's.
        answer_N: which draw each slot makes; -1 for a slot without an answer.
        key: decides every draw, together with `answer_N` and the token's place.
        sampling: temperature, truncation and the longest answer.
        stop_ids: tokens that end an answer.
        banned_ids: tokens that are never drawn.
        sharding: how the answers and all that is kept of them is split; None: not.
    """
    model = merge(params)
    N, T = answer_N.shape[0], sampling.max_tokens
    split = functools.partial(_split, sharding)
    hidden_RD, rows = model.prefill(prompts)
    if group_R is not None:  # once, not in every step
        hidden_RD, rows = hidden_RD[group_R], rows.take(group_R)
    key_N = jax.vmap(jax.random.fold_in, (None, 0))(key, answer_N)
    stop = jnp.array(stop_ids, jnp.int32)

    def body(carry):
        t, hidden_ND, own, token_NT, logp_NT, length_N, done_N = carry
        logits_NV = logprobs.logits(hidden_ND, model.head(), banned=banned_ids)
        token_N, logp_N = draws.draw(
            jax.vmap(jax.random.fold_in, (0, None))(key_N, t),
            logits_NV,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
        )
        token_N = jnp.where(done_N, stop[0], token_N)
        token_NT = token_NT.at[:, t].set(token_N)
        logp_NT = logp_NT.at[:, t].set(jnp.where(done_N, 0, logp_N))
        length_N = length_N + ~done_N
        done_N = done_N | jnp.isin(token_N, stop)
        hidden_ND, own = model.decode(rows, own, token_N, t)
        return t + 1, hidden_ND, own, token_NT, logp_NT, length_N, done_N

    start = (
        jnp.int32(0),
        split(jnp.repeat(hidden_RD, N // hidden_RD.shape[0], axis=0)),
        jax.tree.map(functools.partial(split, axis=1), model.own_cache(N, T)),
        split(jnp.full((N, T), stop_ids[0], jnp.int32)),
        split(jnp.zeros((N, T), jnp.float32)),
        split(jnp.zeros(N, jnp.int32)),
        answer_N < 0,
    )
    unfinished = lambda carry: (carry[0] < T) & ~jnp.all(carry[-1])
    *_, token_NT, logp_NT, length_N, done_N = jax.lax.while_loop(
        unfinished, body, start
    )
    return token_NT, logp_NT, length_N, done_N


def _split(sharding, x, axis=0):
    """Splits `x` along `axis` as the answers are; its other axes follow the weights."""
    if sharding is None:
        return x
    spec = [P.UNCONSTRAINED] * x.ndim
    spec[axis] = sharding.spec[0]
    return jax.lax.with_sharding_constraint(x, NamedSharding(sharding.mesh, P(*spec)))
