"""Softmax attention over several sets of keys at once, a block of queries at a time.

An answer's token sees two sets of keys: those of its prompt, which all answers in the row share, and
those of its own answer so far. Plain attention would copy the prompt's keys to every answer and lay
both side by side. Here each set gives its own matrix of scores, and the sets meet in the softmax.

**Forward.** Let s_ij be the score of query i and key j, and a any set of keys. With m_i, the largest
score of query i in all sets,

    l_i = sum_a sum_{j in a} exp(s_ij - m_i)            out_i = sum_a sum_{j in a} exp(s_ij - m_i) v_j / l_i

are exactly the softmax over the union. Only m and l, one number a query, connect the sets. What is kept
is the output and the log-sum-exp L_i = m_i + log l_i.

**Backward.** With p_ij = exp(s_ij - L_i), the probability of key j, and dout the gradient of the output,

    dv_j  = sum_i p_ij dout_i                           dq_i = sum_j ds_ij k_j
    ds_ij = p_ij (dout_i . v_j - delta_i)               dk_j = sum_i ds_ij q_i
    delta_i = sum_j p_ij (dout_i . v_j) = dout_i . out_i

so every set can be done by itself once L and delta are known (FlashAttention, arXiv:2205.14135, B.2).

**Why it is written out** instead of left to autodiff: autodiff would keep every score and probability of
the forward, [heads, queries, keys] of every layer. Here they are computed again from q, k and L, a block
at a time, and freed. Merging the results of two library calls by their log-sum-exp looks simpler and is
wrong: `jax.nn.dot_product_attention(return_residual=True)` stops the gradient of the log-sum-exp, which
leaves right values with gradients that are off by up to 12 %.

**Why blocks.** Of its own answer, query i sees keys up to i. A block of queries only multiplies with the
keys up to its end, so B blocks do (B + 1) / 2B of the full square. Such blocks have different shapes and
are unrolled in the program; long rows get longer blocks, not more. Where the scores of all queries are
too many for the memory, equal *turns* inside each block follow one another in a loop. Without own keys
there is one block.

Letters besides those of types.py: U queries (tokens) of an answer, Q query heads that share a key/value
head (H = J x Q), S keys of a set.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

# Finite: of a query that sees nothing all scores are equal, and it gets a mean of garbage that is
# masked later. With -inf it would get 0/0, and a NaN survives every mask in the backward pass.
MASKED = -1e30
SAVED = "attention"  # the name under which remat keeps outputs and log-sum-exps
MIN_BLOCK = 128  # queries of a block
MAX_BLOCKS = 4  # blocks of a row; each takes the TPU compiler 11 s of CPU time
MAX_SCORES = 2**27  # at a time on a device: 512 MB in float32; more are computed in turns


class KeySet(NamedTuple):
    """Keys that queries see: `[R, J, S, K]` shared by a row, or `[R, G, J, S, K]` of each answer."""

    key: jax.Array
    value: jax.Array
    mask: jax.Array | None  # bool, broadcasts to scores [R, J, GUQ, S] or [R, G, J, UQ, S]


class OwnKeys(NamedTuple):
    """Keys `[R, G, J, U, K]` of the queries' own tokens: query u sees the keys 0..u."""

    key: jax.Array
    value: jax.Array


class Blocks(NamedTuple):
    """How the queries are divided: `block` queries at once, or `turn` at a time within a block."""

    block: int
    turn: int | None


def attend(
    q_RJGUQK: jax.Array,
    key_sets: list[KeySet],
    own: OwnKeys | None,
    *,
    min_block: int,
    ways: int,
) -> jax.Array:
    """Returns attention to all of `key_sets` and causally to `own`, `[R, J, G, U, Q, K]`.

    Scores and sums are float32, probabilities are rounded to the dtype of the values before they
    multiply them.

    Args:
        q_RJGUQK: queries, scaled already.
        key_sets: what every query may see, but for the masks.
        own: the queries' own keys, if they have any.
        min_block: queries of a block, unless that makes more than MAX_BLOCKS.
        ways: devices that share the rows; each has its share of the scores.
    """
    num_queries = q_RJGUQK.shape[3]
    num_keys = sum(x.key.shape[-2] for x in (*key_sets, *([own] if own else [])))
    scores = q_RJGUQK[..., :1].size // ways // num_queries * num_keys
    blocks = _choose_blocks(num_queries, scores, min_block, causal=own is not None)
    # Turns must divide their block. A padded query is cut off again: its gradient is 0.
    pad = -num_queries % (blocks.turn or 1)
    q_RJGUQK = jnp.pad(q_RJGUQK, [(0, pad if i == 3 else 0) for i in range(6)])
    out: Any = _attention(blocks, q_RJGUQK, key_sets, own)
    return out[:, :, :, :num_queries]


def _choose_blocks(num_queries: int, scores: int, min_block: int, causal: bool) -> Blocks:
    """Returns blocks for queries with `scores` scores each, summed over rows and heads."""
    block = max(min_block, -(-num_queries // MAX_BLOCKS))
    turn = None
    if num_queries * scores > MAX_SCORES:
        # A power of two: it divides the common lengths, and the tiles of an accelerator divide it.
        most = max(1, min(MAX_SCORES // scores, block // 2))
        turn = 2 ** (most.bit_length() - 1)
    if causal:
        return Blocks(block + -block % (turn or 1), turn)
    # All queries see the same keys, so blocks of them would be one program several times: turns of one block.
    turn = turn or min(block, num_queries)
    return Blocks(num_queries + -num_queries % turn, turn)


# ------------------------------------------------------------------------------ both passes
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(blocks, q, key_sets, own):
    return _forward(blocks, q, key_sets, own)[0]


def _forward(blocks, q, key_sets, own):
    """Returns the output and the log-sum-exp `[R, J, G, U, Q, 1]` over all keys."""
    done = []
    for start, stop in _bounds(blocks, q):

        def one(first, q, stop=stop):
            return _softmax(q, _visible(q, first, stop, key_sets, own))

        done.append(_in_turns(blocks, one, start, stop, q))
    return tuple(_join(xs) for xs in zip(*done, strict=True))


def _forward_and_residuals(blocks, q, key_sets, own):
    # Named here, inside of the rule: remat of the layers keeps these two, and the backward of a layer
    # then starts without running the forward of its attention again.
    out, log_total = (checkpoint_name(x, SAVED) for x in _forward(blocks, q, key_sets, own))
    return out, (q, key_sets, own, out, log_total)


def _backward(blocks, residuals, dout):
    """Returns the gradients of q, key_sets and own, block by block of queries.

    A block has all that its own dq needs. Keys are seen by many blocks: their gradients are summed
    over blocks and turns, in float32.
    """
    q, key_sets, own, out, log_total = residuals
    delta = jnp.sum(out.astype(jnp.float32) * dout, -1, keepdims=True)
    keys = [*key_sets, *([own] if own else [])]
    totals = [tuple(jnp.zeros(x.shape, jnp.float32) for x in k[:2]) for k in keys]
    dqs = []
    for start, stop in _bounds(blocks, q):

        def one(first, q, dout, log_total, delta, stop=stop):
            return _gradients(q, dout, log_total, delta, _visible(q, first, stop, key_sets, own))

        given = (q, dout, log_total, delta)
        dq, totals = _in_turns(blocks, one, start, stop, *given, totals=totals)
        dqs.append(dq)
    dkeys = [
        tuple(d.astype(x.dtype) for d, x in zip(total, k, strict=False))
        for total, k in zip(totals, keys, strict=True)
    ]
    dsets = [
        KeySet(dkey, dvalue, None) for dkey, dvalue in dkeys[: len(key_sets)]
    ]  # masks have none
    return _join(dqs).astype(q.dtype), dsets, OwnKeys(*dkeys[-1]) if own else None


_attention.defvjp(_forward_and_residuals, _backward)


# ------------------------------------------------------------------------------ one block
def _softmax(q, key_sets):
    """Returns the attention of a block of queries to all sets, and its log-sum-exp."""
    shape = q.shape[:-1]
    scores = [_scores(q, keys) for keys in key_sets]
    tops = [_unflat(jnp.max(score, -1, keepdims=True), shape) for score in scores]
    # One maximum for all sets: with a maximum of its own, a set of very low scores would weigh as
    # much as one of high scores.
    top = functools.reduce(jnp.maximum, tops)
    total: Any = 0.0
    out: Any = 0.0
    for score, keys in zip(scores, key_sets, strict=True):
        weight = jnp.exp(score - _flat(top, keys.key))
        total += _unflat(jnp.sum(weight, -1, keepdims=True), shape)
        out += _unflat(_dot(weight.astype(keys.value.dtype), keys.value), shape)
    return (out / total).astype(q.dtype), top + jnp.log(total)


def _gradients(q, dout, log_total, delta, key_sets):
    """Returns dq and each set's (dkey, dvalue) of a block of queries, float32."""
    dq, dkeys = 0.0, []
    for keys in key_sets:
        q_, dout_, delta_, log_total_ = (_flat(x, keys.key) for x in (q, dout, delta, log_total))
        weight = jnp.exp(_scores(q, keys) - log_total_)  # p_ij; 0 where masked
        dscore = weight * (_dot(dout_, jnp.swapaxes(keys.value, -1, -2)) - delta_)
        weight, dscore = weight.astype(q.dtype), dscore.astype(q.dtype)
        dq += _unflat(_dot(dscore, keys.key), q.shape[:-1])
        dkeys.append((_transposed_dot(dscore, q_), _transposed_dot(weight, dout_)))
    return dq, dkeys


def _scores(q, keys):
    # Without the barrier JAX sees that the mask does not depend on the layer, widens it to the size
    # of the scores and hoists it out of the scan over layers. With it the mask is tied to q, stays
    # [rows, keys], and is widened where it is used.
    q, mask = jax.lax.optimization_barrier((_flat(q, keys.key), keys.mask))
    return jnp.where(mask, _dot(q, jnp.swapaxes(keys.key, -1, -2)), MASKED)


def _visible(q, first, stop, key_sets, own):
    """Returns what the queries from number `first` on see: all sets, and own keys below `stop`."""
    if own is None:
        return key_sets
    key, value = (x[..., :stop, :] for x in own)
    per_head = q.shape[4]
    query = first + jnp.arange(q.shape[3] * per_head) // per_head  # of each row of UQ
    mask = jnp.arange(key.shape[-2]) <= query[:, None]
    return [*key_sets, KeySet(key, value, mask)]


# ------------------------------------------------------------------------------ blocks and turns
def _bounds(blocks, q):
    """Returns (first, end) of every block of queries."""
    num_queries = q.shape[3]
    starts = range(0, num_queries, blocks.block)
    return [(start, min(start + blocks.block, num_queries)) for start in starts]


def _in_turns(blocks, one, start, stop, *xs, totals=None):
    """Returns `one(first, *xs)` of the queries from `start` to `stop`, all at once or in turns.

    Args:
        blocks: says whether there are turns.
        one: takes the number of its first query and its part of `xs`.
        start: first query of the block.
        stop: its end.
        *xs: arrays with all queries at axis 3.
        totals: if given, `one` returns (output, gradients of keys); the latter are added to these.
    """
    xs = [x[:, :, :, start:stop] for x in xs]
    if blocks.turn is None or stop - start <= blocks.turn:
        out = one(start, *xs)
        return out if totals is None else (out[0], _add(totals, out[1]))

    # Axis 3 becomes (turns, queries of a turn), and turns move to the front for the loop.
    split = lambda x: x.reshape(*x.shape[:3], -1, blocks.turn, *x.shape[4:])
    join = lambda x: jnp.moveaxis(x, 0, 3).reshape(*x.shape[1:4], -1, *x.shape[5:])
    xs = [jnp.moveaxis(split(x), 3, 0) for x in xs]
    firsts = jnp.arange(start, stop, blocks.turn)
    if totals is None:
        return jax.tree.map(join, jax.lax.map(lambda xs: one(*xs), (firsts, *xs)))

    def step(totals, xs):
        out, more = one(*xs)
        return _add(totals, more), out

    totals, out = jax.lax.scan(step, totals, (firsts, *xs))
    return join(out), totals


def _add(totals, more):
    """Adds gradients of keys; a block that does not see the last own keys has none of them."""

    def add(total, x):
        behind = total.shape[-2] - x.shape[-2]
        return total + jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, behind), (0, 0)])

    return jax.tree.map(add, totals, more)


def _join(xs):
    return jnp.concatenate(xs, 3) if len(xs) > 1 else xs[0]


# ------------------------------------------------------------------------------ matrices
def _flat(x_RJGUQK: jax.Array, keys: jax.Array) -> jax.Array:
    """Returns the queries as one matrix for each matrix of keys.

    Shared keys [R, J, S, K] meet the queries of all answers, [R, J, GUQ, K]; keys of an answer
    [R, G, J, S, K] meet its own, [R, G, J, UQ, K].
    """
    x = jnp.swapaxes(x_RJGUQK, 1, 2) if keys.ndim == 5 else x_RJGUQK
    return x.reshape(*keys.shape[:-2], -1, x.shape[-1])


def _unflat(x: jax.Array, shape_RJGUQ: tuple[int, ...]) -> jax.Array:
    """Inverts `_flat`."""
    if x.ndim == 4:
        return x.reshape(*shape_RJGUQ, -1)
    rows, num_kv_heads, group_size, *rest = shape_RJGUQ
    return jnp.swapaxes(x.reshape(rows, group_size, num_kv_heads, *rest, -1), 1, 2)


def _dot(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.matmul(x, y, preferred_element_type=jnp.float32)


def _transposed_dot(weight: jax.Array, x: jax.Array) -> jax.Array:
    """Returns weight^T x, as (x^T weight)^T: a CPU copies what it transposes, and x is the smaller."""
    return jnp.swapaxes(_dot(jnp.swapaxes(x, -1, -2), weight), -1, -2)
