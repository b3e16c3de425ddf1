"""Softmax attention over several sets of keys at once, a block of queries at a time.

An answer's token sees two sets of keys: those of its prompt, which all answers in the row share, and
those of its own answer so far. Plain attention would copy the prompt's keys to every answer and concatenate
both. Here each set has a separate matrix of scores, and the softmax combines them.

**Forward.** Let s_ij be the score of query i and key j, and a any set of keys. With m_i, the largest
score of query i in all sets,

    l_i = sum_a sum_{j in a} exp(s_ij - m_i)            out_i = sum_a sum_{j in a} exp(s_ij - m_i) v_j / l_i

are exactly the softmax over the union. Only m and l, one number each per query, connect the sets. The
forward keeps the output and the log-sum-exp L_i = m_i + log l_i.

**Backward.** With p_ij = exp(s_ij - L_i), the probability of key j, and dout the gradient of the output,

    dv_j  = sum_i p_ij dout_i                           dq_i = sum_j ds_ij k_j
    ds_ij = p_ij (dout_i . v_j - delta_i)               dk_j = sum_i ds_ij q_i
    delta_i = sum_j p_ij (dout_i . v_j) = dout_i . out_i

so each set can be computed separately once L and delta are known (FlashAttention, arXiv:2205.14135, B.2).

**Why it is written out** instead of left to autodiff: autodiff would keep every score and probability of
the forward, [heads, queries, keys] in every layer. Here they are computed again from q, k and L, a block
at a time, and freed. Merging the results of two library calls by their log-sum-exp looks simpler and is
wrong: `jax.nn.dot_product_attention(return_residual=True)` stops the gradient of the log-sum-exp, so the
values are right but the gradients are off by up to 12 %.

**Why blocks.** In its own answer, query i sees the keys up to i. A block of queries is multiplied only
with the keys up to its end, so B blocks compute (B + 1) / 2B of the full square. These blocks have
different shapes and are unrolled in the program; long rows get longer blocks, not more of them. If all
queries together have too many scores for the memory, each block is divided into equal *turns*, which
run in a loop. Without own keys there is one block. A CPU takes only as many rows at a time as have scores
that stay in its cache.

Letters that types.py does not have: U queries (tokens) of an answer, Q query heads that share a key/value
head (H = J x Q), S keys of a set.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from vade_jax import arrays

# Finite, for queries that see no key: all their scores are equal, and their output is a mean of garbage
# that is masked later. With -inf it would be 0/0, and a NaN survives every mask in the backward pass.
MASKED = -1e30
SAVED = "attention"  # the name under which remat keeps outputs and log-sum-exps
MIN_BLOCK = 128  # fewest queries in a block
MAX_BLOCKS = 4  # most blocks in a row; each takes the TPU compiler 11 s of CPU time
MAX_SCORES = 2**27  # scores at a time on a device: 512 MB in float32; more are computed in turns
CPU_SCORES = 2**22  # the same on a CPU, whose caches they should not leave: 16 MB


class KeySet(NamedTuple):
    """Keys that queries see: `[R, J, S, K]` for a whole row, or `[R, J, G, S, K]` for each answer."""

    key: jax.Array
    value: jax.Array
    mask: jax.Array | None  # bool, broadcasts to scores [R, J, GUQ, S] or [R, J, G, UQ, S]


class OwnKeys(NamedTuple):
    """Keys `[R, J, G, U, K]` of the queries' own tokens: query u sees the keys 0 to u."""

    key: jax.Array
    value: jax.Array


class Blocks(NamedTuple):
    """How queries are divided: blocks of `block`, each at once (`turn` is None) or `turn` at a time.

    All of it is done for `rows` rows at a time, or for all of them (None).
    """

    block: int
    turn: int | None
    rows: int | None = None


def attend(
    q_RJGUQK: jax.Array,
    key_sets: list[KeySet],
    own: OwnKeys | None,
    *,
    min_block: int,
    ways: int,
    on_cpu: bool = False,
    known: Any = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns attention to all of `key_sets` and causally to `own`, `[R, J, G, U, Q, K]`, and L.

    Scores and sums are float32. Probabilities are rounded to the dtype of the values before the matmul
    with them. L is the log-sum-exp of the scores, `[R, J, G, U, Q, 1]`, without a gradient.

    Args:
        q_RJGUQK: queries, already scaled.
        key_sets: sets of keys that every query sees, except where a mask is False.
        own: the queries' own keys, if they have any.
        min_block: number of queries in a block; larger if there would be more than MAX_BLOCKS.
        ways: number of devices that share the rows, and with them the scores.
        on_cpu: whether the device is a CPU.
        known: what an earlier call returned, if only gradients are needed.
    """
    num_queries = q_RJGUQK.shape[3]
    num_keys = sum(x.key.shape[-2] for x in (*key_sets, *([own] if own else [])))
    scores = q_RJGUQK[..., :1].size // ways // num_queries * num_keys
    rows, most = len(q_RJGUQK), MAX_SCORES
    if on_cpu and ways == 1:
        few = max(1, CPU_SCORES * rows // (num_queries * scores))
        few, most = next(x for x in range(min(few, rows), 0, -1) if rows % x == 0), CPU_SCORES
        scores, rows = scores * few // rows, few
    blocks = _choose_blocks(num_queries, scores, min_block, causal=own is not None, most=most)
    if rows < len(q_RJGUQK):
        blocks = blocks._replace(rows=rows)
    # A block must consist of whole turns. Padded queries are cut off again, so their gradient is 0.
    pad = -num_queries % (blocks.turn or 1)
    padded = lambda x: jnp.pad(x, [(0, pad if i == 3 else 0) for i in range(6)])
    q_RJGUQK, known = jax.tree.map(padded, (q_RJGUQK, known))
    done: Any = _attention(blocks, q_RJGUQK, key_sets, own, known)
    return jax.tree.map(lambda x: x[:, :, :, :num_queries], done)


def _choose_blocks(
    num_queries: int, scores: int, min_block: int, causal: bool, most: int = MAX_SCORES
) -> Blocks:
    """Returns the blocks; `scores` counts the scores of one query, over all rows and heads of a device."""
    block = max(min_block, -(-num_queries // MAX_BLOCKS))
    turn = None
    if num_queries * scores > most:
        # A power of two divides the usual lengths, and fits the tiles of accelerators.
        most = max(1, min(most // scores, block // 2))
        turn = 2 ** (most.bit_length() - 1)
    if causal:
        return Blocks(block + -block % (turn or 1), turn)
    # All queries see the same keys, so several blocks would unroll the same program several times. One block
    # in turns loops over it instead.
    turn = turn or min(block, num_queries)
    return Blocks(num_queries + -num_queries % turn, turn)


# ------------------------------------------------------------------------------ both passes
@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _attention(blocks, q, key_sets, own, known):
    return known or _forward(blocks, q, key_sets, own)


def _forward(blocks, q, key_sets, own):
    """Returns the output and the log-sum-exp `[R, J, G, U, Q, 1]` over all keys."""
    if blocks.rows is not None:
        of_rows = functools.partial(_forward, blocks._replace(rows=None))
        return _by_rows(blocks.rows, of_rows, q, key_sets, own)
    done = []
    for start, stop in _bounds(blocks, q):

        def one(first, q, stop=stop):
            return _softmax(q, _visible(q, first, stop, key_sets, own))

        done.append(_in_turns(blocks, one, start, stop, q))
    return tuple(_join(xs) for xs in zip(*done, strict=True))


def _forward_and_residuals(blocks, q, key_sets, own, known):
    # Named here, inside the rule, so that remat of the layers keeps both arrays. A layer's backward then
    # need not run the forward of its attention again.
    done = known or _forward(blocks, q, key_sets, own)
    done = out, log_total = tuple(checkpoint_name(x, SAVED) for x in done)
    return done, (q, key_sets, own, out, log_total)


def _backward(blocks, residuals, doutputs):
    """Returns the gradients of q, key_sets and own, one block of queries at a time.

    The dq of a block is complete after that block. Many blocks see the same keys, so the gradients of
    keys and values are summed over blocks and turns, in float32.
    """
    dout, _ = doutputs
    if blocks.rows is not None:
        of_rows = functools.partial(_backward, blocks._replace(rows=None))
        return _by_rows(blocks.rows, of_rows, residuals, (dout, None))
    q, key_sets, own, out, log_total = residuals
    delta = jnp.sum(out.astype(jnp.float32) * dout, -1, keepdims=True)
    keys = [*key_sets, *([own] if own else [])]
    totals = [tuple(jnp.zeros(x.shape, jnp.float32) for x in k[:2]) for k in keys]
    dqs = []
    for start, stop in _bounds(blocks, q):

        def one(first, q, dout, log_total, delta, stop=stop):
            return _gradients(q, dout, log_total, delta, _visible(q, first, stop, key_sets, own))

        arguments = (q, dout, log_total, delta)
        dq, totals = _in_turns(blocks, one, start, stop, *arguments, totals=totals)
        dqs.append(dq)
    dkeys = [
        tuple(d.astype(x.dtype) for d, x in zip(total, k, strict=False))
        for total, k in zip(totals, keys, strict=True)
    ]
    dsets = [
        KeySet(dkey, dvalue, None) for dkey, dvalue in dkeys[: len(key_sets)]
    ]  # masks have no gradients
    return _join(dqs).astype(q.dtype), dsets, OwnKeys(*dkeys[-1]) if own else None, None


_attention.defvjp(_forward_and_residuals, _backward)


# ------------------------------------------------------------------------------ one block
def _softmax(q, key_sets):
    """Returns the attention of a block of queries to all sets, and the log-sum-exp of the scores."""
    shape = q.shape[:-1]
    scores = [_scores(q, keys) for keys in key_sets]
    tops = [_unflat(arrays.top(score), shape) for score in scores]
    # One maximum for all sets: if each set had its own, a set with very low scores would get as much
    # weight as a set with high ones.
    top = functools.reduce(jnp.maximum, tops)
    total: Any = 0.0
    out: Any = 0.0
    for score, keys in zip(scores, key_sets, strict=True):
        weight = jnp.exp(score - _flat(top, keys.key))
        total += _unflat(jnp.sum(weight, -1, keepdims=True), shape)
        out += _unflat(_dot(weight.astype(keys.value.dtype), keys.value), shape)
    return (out / total).astype(q.dtype), top + jnp.log(total)


def _gradients(q, dout, log_total, delta, key_sets):
    """Returns dq of a block of queries, and the block's (dkey, dvalue) for each set, float32."""
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
    # Without the barrier, the compiler sees that neither the mask nor the number depends on the layer,
    # broadcasts them to the size of the scores and moves that out of the scan over layers. The barrier ties
    # them to q, so they stay small and are broadcast where they are used.
    small = (_flat(q, keys.key), keys.mask, jnp.float32(MASKED))
    q, mask, masked = jax.lax.optimization_barrier(small)
    return jnp.where(mask, _dot(q, jnp.swapaxes(keys.key, -1, -2)), masked)


def _visible(q, first, stop, key_sets, own):
    """Returns the sets that queries `first` and later see: all of `key_sets`, and own keys below `stop`."""
    if own is None:
        return key_sets
    key, value = (x[..., :stop, :] for x in own)
    per_head = q.shape[4]
    query = first + jnp.arange(q.shape[3] * per_head) // per_head  # the query of each row of UQ
    mask = jnp.arange(key.shape[-2]) <= query[:, None]
    return [*key_sets, KeySet(key, value, mask)]


# ------------------------------------------------------------------------------ blocks and turns
def _bounds(blocks, q):
    """Returns (first query, end) of every block."""
    num_queries = q.shape[3]
    starts = range(0, num_queries, blocks.block)
    return [(start, min(start + blocks.block, num_queries)) for start in starts]


def _in_turns(blocks, one, start, stop, *xs, totals=None):
    """Returns `one(first, *xs)` for the queries from `start` to `stop`, all at once or in turns.

    Args:
        blocks: has the size of a turn.
        one: takes the number of its first query, and the part of each of `xs` with its queries.
        start: first query of the block.
        stop: end of the block.
        *xs: arrays with all queries at axis 3.
        totals: sums of the gradients of keys so far. If given, `one` returns (output, gradients of keys),
            and the result is (output, new sums).
    """
    xs = [x[:, :, :, start:stop] for x in xs]
    if blocks.turn is None or stop - start <= blocks.turn:
        out = one(start, *xs)
        return out if totals is None else (out[0], _add(totals, out[1]))

    # Axis 3 becomes (turns, queries in a turn), and the turns move to the front for the loop.
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
    """Adds gradients of keys. A block does not see the own keys after its end: there it adds 0."""

    def add(total, x):
        missing = total.shape[-2] - x.shape[-2]
        return total + jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, missing), (0, 0)])

    return jax.tree.map(add, totals, more)


def _by_rows(rows, function, *xs):
    """Returns `function(*xs)`, computed for a few rows at a time; rows are the first axis of all arrays."""
    split = lambda x: x.reshape(-1, rows, *x.shape[1:])
    out = jax.lax.map(lambda xs: function(*xs), jax.tree.map(split, xs))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), out)


def _join(xs):
    return jnp.concatenate(xs, 3) if len(xs) > 1 else xs[0]


# ------------------------------------------------------------------------------ matrices
def _flat(x_RJGUQK: jax.Array, keys: jax.Array) -> jax.Array:
    """Returns the queries as one matrix for each matrix of keys.

    For keys of a row, [R, J, S, K], these are the queries of all its answers, [R, J, GUQ, K]; for keys of
    each answer, [R, J, G, S, K], the queries of that answer, [R, J, G, UQ, K].
    """
    return x_RJGUQK.reshape(*keys.shape[:-2], -1, x_RJGUQK.shape[-1])


def _unflat(x: jax.Array, shape_RJGUQ: tuple[int, ...]) -> jax.Array:
    """Inverts `_flat`."""
    return x.reshape(*shape_RJGUQ, -1)


def _dot(x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.matmul(x, y, preferred_element_type=jnp.float32)


def _transposed_dot(weight: jax.Array, x: jax.Array) -> jax.Array:
    """Returns weight^T x, computed as (x^T weight)^T: a CPU copies what it transposes, and x is smaller.

    The barrier keeps the compiler from turning it back.
    """
    out = jax.lax.optimization_barrier(_dot(jnp.swapaxes(x, -1, -2), weight))
    return jnp.swapaxes(out, -1, -2)
