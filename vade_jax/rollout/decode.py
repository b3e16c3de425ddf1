"""The decode loop: each prompt is prefilled once, then every answer grows by one token per step.

The loop runs until all answers have ended. `answers` is meant to be jitted; each shape compiles one
program. The second half of the file draws tokens from logits and returns their exact log-probs under
the distribution that they were drawn from.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from vade_jax.models import logprobs
from vade_jax.rollout.engine import Sampling
from vade_jax.types import Array, Params, Prompts

BLOCK = 128  # tokens are summed in blocks of a multiple of it: what a TPU holds in a row of its registers


def answers(
    merge: Callable[[Params], Any],
    params: Params,
    weights: Any,
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
    """Returns `token_NT, logp_NT, length_N, finished_N` of answers that are laid out in rows.

    N = R x (answers per row). All answers in a row read one copy of the prompt's keys and values.

    Args:
        merge: params -> a model with `prefill`, `own_cache` and `decode`.
        params: its parameters, as the trainer has them.
        weights: those that the loop reads, with a head: see `local.Apart`.
        prompts: the prompts that the rows belong to.
        group_R: the prompt of each row; None: row r has prompt r.
        answer_N: the number of the answer in each slot; -1 for an empty slot.
        key: decides every draw, together with `answer_N` and the token's position in the answer.
        sampling: temperature, truncation and the longest answer.
        stop_ids: tokens that end an answer; the first one also pads `token_NT` after the end.
        banned_ids: tokens that are never drawn.
        sharding: how answers and their state are split over devices; None: not at all.
    """
    model = merge(params)
    N, T = answer_N.shape[0], sampling.max_tokens
    split = functools.partial(_split, sharding)
    hidden_RD, rows = model.prefill(prompts)
    if group_R is not None:
        # Gathered once, before the loop: a gather inside would read the prompts' cache twice per step.
        hidden_RD, rows = hidden_RD[group_R], rows.take(group_R)
    # A draw depends on the answer's number, not on its slot. So an answer stays the same however the
    # answers are batched. All are drawn before the loop: inside, each step would hash the keys again.
    uniform_NT = uniforms(key, answer_N, T)
    rows, R = rows.apart(), hidden_RD.shape[0]
    start = Growing(
        t=jnp.int32(0),
        hidden_ND=split(jnp.repeat(hidden_RD, N // R, axis=0)),
        # The loop keeps the shardings of `start`. They are set explicitly, because XLA would replicate
        # arrays that start as zeros.
        own=jax.tree.map(split, model.own_cache(rows, N // R, T)),
        token_NT=split(jnp.full((N, T), stop_ids[0], jnp.int32)),
        logp_NT=split(jnp.zeros((N, T), jnp.float32)),
        length_N=split(jnp.zeros(N, jnp.int32)),
        done_N=answer_N < 0,  # empty slots start as done, so the loop does not wait for them
    )

    def step(now: Growing) -> Growing:
        logits_NV = logprobs.logits(now.hidden_ND, weights.head_DV, banned=banned_ids)
        token_N, logp_N = draw(uniform_NT[:, now.t], logits_NV, sampling)
        now = append(now, token_N, logp_N, stop_ids)
        hidden_ND, own = model.decode(weights, rows, now.own, now.token_NT[:, now.t], now.t)
        return now._replace(t=now.t + 1, hidden_ND=hidden_ND, own=own)

    end = jax.lax.while_loop(lambda now: (now.t < T) & ~jnp.all(now.done_N), step, start)
    return end.token_NT, end.logp_NT, end.length_N, end.done_N


class Growing(NamedTuple):
    """Answers of t tokens, or fewer where they have ended."""

    t: jax.Array
    hidden_ND: jax.Array  # predicts token t; of the prefill or of the previous step
    own: Any  # each layer's cache of the answers' tokens
    token_NT: jax.Array
    logp_NT: jax.Array
    length_N: jax.Array
    done_N: jax.Array


def append(now: Growing, token_N: Array, logp_N: Array, stop_ids: tuple[int, ...]) -> Growing:
    """Returns the answers with token t; those that are done get padding and the log-prob 0."""
    token_N = jnp.where(now.done_N, stop_ids[0], token_N)
    return now._replace(
        token_NT=now.token_NT.at[:, now.t].set(token_N),
        logp_NT=now.logp_NT.at[:, now.t].set(jnp.where(now.done_N, 0, logp_N)),
        length_N=now.length_N + ~now.done_N,  # the end token counts
        done_N=now.done_N | jnp.isin(token_N, jnp.array(stop_ids, jnp.int32)),
    )


def _split(sharding, x):
    """Splits the first axis of `x` like the answers; the compiler derives the others from the weights."""
    if sharding is None:
        return x
    spec = [sharding.spec[0], *[P.UNCONSTRAINED] * (x.ndim - 1)]
    return jax.lax.with_sharding_constraint(x, NamedSharding(sharding.mesh, P(*spec)))


# ----------------------------------------------------------------------- tokens from logits
def uniforms(key: jax.Array, answer_N: Array, length: int) -> jax.Array:
    """Returns the random number that draws each token, `[N, T]`, uniform in [0, 1).

    It depends only on the answer's number and on the token's position.
    """
    key_N = jax.vmap(jax.random.fold_in, (None, 0))(key, answer_N)
    one = lambda key, t: jax.random.uniform(jax.random.fold_in(key, t))
    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(key_N, jnp.arange(length))


def draw(uniform_N: Array, logits_NV: Array, sampling: Sampling) -> tuple[jax.Array, jax.Array]:
    """Draws a token for each row with that row's uniform number; returns `token_N` and `logp_N`.

    `logp_N` is the log-prob under the distribution that is drawn from: tempered, truncated and
    renormalised. At temperature 0 the most likely token is taken, and `logp_N` is its log-prob at
    temperature 1.
    """
    if sampling.temperature == 0:  # a Python number: the branch is chosen while tracing
        token_N = jnp.argmax(logits_NV, -1)
        return token_N, _take(jax.nn.log_softmax(logits_NV), token_N)
    logits_NV = truncate(logits_NV / sampling.temperature, sampling.top_p, sampling.top_k)
    top_N1 = jnp.max(logits_NV, -1, keepdims=True)
    weight_NV = jnp.exp(logits_NV - top_N1)
    token_N, total_N = inverse_cdf(uniform_N, weight_NV)
    return token_N, _take(logits_NV, token_N) - top_N1[:, 0] - jnp.log(total_N)


def inverse_cdf(uniform_N: Array, weight_NV: Array) -> tuple[jax.Array, jax.Array]:
    """Returns the token at which the cumulative weight passes the uniform draw, and the sum of the weights.

    This needs one random number per row, where `jax.random.categorical` draws V Gumbels. The weights are
    summed in blocks: the draw first finds its block, then its token there, so that no cumulative sum runs
    over the vocabulary. A token with weight 0 is never returned. Here B are blocks, C tokens of a block.
    """
    num_rows, vocab_size = weight_NV.shape
    size = BLOCK * math.ceil(math.sqrt(vocab_size) / BLOCK)
    weight_NV = jnp.pad(weight_NV, [(0, 0), (0, -vocab_size % size)])
    weight_NBC = weight_NV.reshape(num_rows, -1, size)
    mass_NB = jnp.sum(weight_NBC, -1)
    total_N = jnp.sum(mass_NB, -1)
    block_N, before_N = _interval(uniform_N * total_N, mass_NB)
    weight_NC = jnp.take_along_axis(weight_NBC, block_N[:, None, None], 1)[:, 0]
    inside_N, _ = _interval(uniform_N * total_N - before_N, weight_NC)
    return block_N * size + inside_N, total_N


def _interval(threshold_N: Array, weight_NC: Array) -> tuple[jax.Array, jax.Array]:
    """Returns the first column at which the running sum exceeds the threshold, and the sum before it.

    Rounding can leave the threshold above the last sum; then it is the last column with a weight.
    """
    # A matrix product, because a cumulative sum takes several loops on a CPU and several kernels on a GPU.
    upto = np.triu(np.ones((weight_NC.shape[-1],) * 2, np.float32))
    end_NC = jnp.matmul(weight_NC, upto, precision="highest")
    positive_NC = weight_NC > 0
    last_N1 = jnp.max(jnp.where(positive_NC, end_NC, 0), -1, keepdims=True)
    above_NC = (end_NC > threshold_N[:, None]) | (end_NC == last_N1)
    column_N = jnp.argmax(positive_NC & above_NC, -1)
    return column_N, _take(end_NC - weight_NC, column_N)


def truncate(logits_NV: Array, top_p: float, top_k: int) -> Array:
    """Keeps the `top_k` largest logits (0: all), then the nucleus of mass `top_p`; others become -inf.

    The nucleus is computed after the top k are renormalised. All logits that tie at an edge are kept.
    """
    if top_k:
        kth_N1 = jax.lax.top_k(logits_NV, min(top_k, logits_NV.shape[-1]))[0][:, -1:]
        logits_NV = jnp.where(logits_NV >= kth_N1, logits_NV, -jnp.inf)
    if top_p < 1:
        prob_NV = jax.nn.softmax(logits_NV)
        likeliest_NV = jnp.sort(prob_NV, descending=True)
        before_NV = jnp.cumsum(likeliest_NV, -1) - likeliest_NV  # the mass of the likelier ones
        least_N1 = jnp.min(likeliest_NV, -1, where=before_NV < top_p, initial=1, keepdims=True)
        logits_NV = jnp.where(prob_NV >= least_N1, logits_NV, -jnp.inf)
    return logits_NV


def _take(x_NV, token_N):
    return jnp.take_along_axis(x_NV, token_N[:, None], -1)[:, 0]
