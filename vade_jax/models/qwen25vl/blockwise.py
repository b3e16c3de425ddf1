"""Softmax attention over the union of several sets of keys, a block of queries at a time.

The sets are merged by their shared max and their sums of exponentials, so no key is copied per answer
and no [N, P + T] mask exists. The backward is written out: that of FlashAttention (arXiv:2205.14135,
B.2), set by set with the merged sums. `jax.nn.dot_product_attention(return_residual=True)` must not be
used for this: it stops the gradient of the log-sum-exp.

Letters beside types.py: U queries of an answer, Q query heads of a key/value head (H = J x Q).
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

MASKED = -1e30  # finite: a query that sees nothing gets a mean of garbage, not NaN
SAVED = "attention"  # what remat keeps: outputs and log-sum-exps
MIN_BLOCK = 128  # queries of a block
MAX_BLOCKS = 8  # each block is unrolled in the program, so long rows get longer ones
MAX_SCORES = (
    2**27
)  # that exist at a time on a device; more, and a block is done in turns


class Part(NamedTuple):
    """Keys that queries see: `[R, J, S, K]` shared by a row, or `[R, G, J, S, K]` own."""

    key: jax.Array
    value: jax.Array
    mask: jax.Array  # bool, broadcasts to scores [R, J, GUQ, S] or [R, G, J, UQ, S]


class Own(NamedTuple):
    """Keys `[R, G, J, U, K]` of the queries' own tokens, seen causally."""

    key: jax.Array
    value: jax.Array


class Blocks(NamedTuple):
    """How queries are cut: blocks are unrolled, and see no key behind their end; turns loop."""

    block: int
    turn: int | None


def attend(
    q_RJGUQK: jax.Array,
    parts: list[Part],
    own: Own | None,
    *,
    min_block: int,
    ways: int,
) -> jax.Array:
    """Returns attention to all of `parts` and causally to `own`, `[R, J, G, U, Q, K]`.

    Scores and sums are float32; neither pass keeps them. `ways`: devices that share the rows.
    """
    num_queries = q_RJGUQK.shape[3]
    num_keys = sum(x.key.shape[-2] for x in (*parts, *([own] if own else [])))
    scores = q_RJGUQK[..., :1].size // ways // num_queries * num_keys
    blocks = _cut(num_queries, scores, min_block)
    pad = -num_queries % (blocks.turn or 1)
    q_RJGUQK = jnp.pad(q_RJGUQK, [(0, pad if i == 3 else 0) for i in range(6)])
    return _merged(blocks, q_RJGUQK, parts, own)[:, :, :, :num_queries]


def _cut(num_queries: int, scores: int, min_block: int) -> Blocks:
    """Returns blocks whose scores, `scores` a query, fit."""
    block = max(min_block, -(-num_queries // MAX_BLOCKS))
    if num_queries * scores <= MAX_SCORES:
        return Blocks(block, None)
    turn = max(1, min(MAX_SCORES // scores, block // 2))
    return Blocks(block + -block % turn, turn)


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _merged(blocks, q, parts, own):
    return _forward(blocks, q, parts, own)[0]


def _forward(blocks, q, parts, own):
    """Returns the output and the log-sum-exp `[R, J, G, U, Q, 1]` over all keys."""
    done = []
    for start, stop in _bounds(blocks, q):
        one = lambda first, q, stop=stop: _softmax(q, _seen(q, first, stop, parts, own))
        done.append(_in_turns(blocks, one, start, stop, q))
    return tuple(_join(xs) for xs in zip(*done, strict=True))


def _forward_and_residuals(blocks, q, parts, own):
    out, log_total = (
        checkpoint_name(x, SAVED) for x in _forward(blocks, q, parts, own)
    )
    return out, (q, parts, own, out, log_total)


def _backward(blocks, residuals, dout):
    q, parts, own, out, log_total = residuals
    delta = jnp.sum(out.astype(jnp.float32) * dout, -1, keepdims=True)
    keys = [*parts, *([own] if own else [])]
    totals = [tuple(jnp.zeros(x.shape, jnp.float32) for x in part[:2]) for part in keys]
    dqs = []
    for start, stop in _bounds(blocks, q):

        def one(first, q, *rest, stop=stop):
            return _gradients(q, *rest, _seen(q, first, stop, parts, own))

        given = (q, dout, log_total, delta)
        dq, totals = _in_turns(blocks, one, start, stop, *given, totals=totals)
        dqs.append(dq)
    dkeys = [
        tuple(d.astype(x.dtype) for d, x in zip(total, part, strict=False))
        for total, part in zip(totals, keys, strict=True)
    ]
    dparts = [Part(*dkey, None) for dkey in dkeys[: len(parts)]]
    return _join(dqs).astype(q.dtype), dparts, Own(*dkeys[-1]) if own else None


_merged.defvjp(_forward_and_residuals, _backward)


def _bounds(blocks, q):
    num_queries = q.shape[3]
    starts = range(0, num_queries, blocks.block)
    return [(start, min(start + blocks.block, num_queries)) for start in starts]


def _in_turns(blocks, one, start, stop, *xs, totals=None):
    """Returns `one(first query, *xs)` of the block; with `totals`, its second output added up."""
    xs = [x[:, :, :, start:stop] for x in xs]
    if blocks.turn is None or stop - start <= blocks.turn:
        out = one(start, *xs)
        return out if totals is None else (out[0], _add(totals, out[1]))
    split = lambda x: x.reshape(*x.shape[:3], -1, blocks.turn, *x.shape[4:])
    xs = [jnp.moveaxis(split(x), 3, 0) for x in xs]
    firsts = jnp.arange(start, stop, blocks.turn)
    join = lambda x: jnp.moveaxis(x, 0, 3).reshape(*x.shape[1:4], -1, *x.shape[5:])
    if totals is None:
        return jax.tree.map(join, jax.lax.map(lambda xs: one(*xs), (firsts, *xs)))

    def step(totals, xs):
        out, more = one(*xs)
        return _add(totals, more), out

    totals, out = jax.lax.scan(step, totals, (firsts, *xs))
    return join(out), totals


def _add(totals, more):
    """Adds gradients of keys; a block that sees fewer own keys has fewer."""

    def add(total, x):
        behind = total.shape[-2] - x.shape[-2]
        return total + jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, behind), (0, 0)])

    return jax.tree.map(add, totals, more)


def _seen(q, first, stop, parts, own):
    """Returns what the queries from number `first` on see, own keys up to `stop`."""
    if own is None:
        return parts
    key, value = (x[..., :stop, :] for x in own)
    per_head = q.shape[4]
    query = first + jnp.arange(q.shape[3] * per_head) // per_head
    return [*parts, Part(key, value, jnp.arange(key.shape[-2]) <= query[:, None])]


def _softmax(q, parts):
    """Returns sum_i exp(s_i - m) v_i / sum_i sum exp(s_i - m), and m + log of the divisor.

    i runs over the parts; m is the largest of all scores s.
    """
    shape = q.shape[:-1]
    scores = [_scores(q, part) for part in parts]
    tops = [_unflat(jnp.max(score, -1, keepdims=True), shape) for score in scores]
    top = functools.reduce(jnp.maximum, tops)
    total, out = 0.0, 0.0
    for score, part in zip(scores, parts, strict=True):
        weight = jnp.exp(score - _flat(top, part.key))
        total += _unflat(jnp.sum(weight, -1, keepdims=True), shape)
        out += _unflat(_dot(weight.astype(part.value.dtype), part.value), shape)
    return (out / total).astype(q.dtype), top + jnp.log(total)


def _gradients(q, dout, log_total, delta, parts):
    """Returns dq and each part's (dkey, dvalue), float32; the scores are made again."""
    dq, dkeys = 0.0, []
    for part in parts:
        q_, dout_, delta_, log_total_ = (
            _flat(x, part.key) for x in (q, dout, delta, log_total)
        )
        weight = jnp.exp(_scores(q, part) - log_total_)
        dscore = weight * (_dot(dout_, jnp.swapaxes(part.value, -1, -2)) - delta_)
        weight, dscore = weight.astype(q.dtype), dscore.astype(q.dtype)
        dq += _unflat(_dot(dscore, part.key), q.shape[:-1])
        dkeys.append((_collect(dscore, q_), _collect(weight, dout_)))
    return dq, dkeys


def _scores(q, part):
    # Tied to q, the mask is widened here; JAX would hoist that out of the scan over layers.
    q, mask = jax.lax.optimization_barrier((_flat(q, part.key), part.mask))
    return jnp.where(mask, _dot(q, jnp.swapaxes(part.key, -1, -2)), MASKED)


def _flat(x_RJGUQK: jax.Array, keys: jax.Array) -> jax.Array:
    """Returns a matrix of queries for each one of keys: [R, J, GUQ, K], [R, G, J, UQ, K]."""
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


def _collect(weight: jax.Array, x: jax.Array) -> jax.Array:
    """Returns weight^T x, as (x^T weight)^T: a CPU copies a transposed operand; x is small."""
    return jnp.swapaxes(_dot(jnp.swapaxes(x, -1, -2), weight), -1, -2)


def _join(xs):
    return jnp.concatenate(xs, 3) if len(xs) > 1 else xs[0]
