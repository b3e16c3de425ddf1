"""Attention over one or several sets of keys, merged in differentiable code.

An answer's query sees its prompt's keys (shared by the row) and its own. The parts are merged
by their shared max and their sums of exponentials, so no key is copied per answer and no
[N, P + T] mask exists. `jax.nn.dot_product_attention(return_residual=True)` must not be used
for this: it stops the gradient of the log-sum-exp.

Letters beside types.py: U queries of an answer, Q query heads of a key/value head (H = J x Q).
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

from vade_jax.types import Array

MASKED = -1e30  # finite: a query that sees nothing gets a mean of garbage, not NaN
SAVED = "attention"  # what remat keeps: outputs and log-sum-exps
MIN_BLOCK = 128  # queries whose scores are made together
MAX_BLOCKS = 8  # each block is unrolled in the program, so long rows get longer ones


@chex.dataclass(frozen=True)
class Cache:
    """Keys and values of prompts, and where their answers start.

    J is before P, as the matmuls of decoding want it: they would copy another layout at each
    step.
    """

    key_LMJPK: Array
    value_LMJPK: Array
    length_M: Array  # int32
    next_position_M: Array  # int32

    def take(self, index_R: Array) -> "Cache":
        """Returns the cache of these prompts, one for each row."""
        return Cache(
            key_LMJPK=jnp.take(self.key_LMJPK, index_R, axis=1),
            value_LMJPK=jnp.take(self.value_LMJPK, index_R, axis=1),
            length_M=jnp.take(self.length_M, index_R, axis=0),
            next_position_M=jnp.take(self.next_position_M, index_R, axis=0),
        )


@chex.dataclass(frozen=True)
class OwnCache:
    """Keys and values of the answers' own tokens."""

    key_LNJTK: Array
    value_LNJTK: Array


class Part(NamedTuple):
    """Keys that queries see: `[R, J, S, K]` shared by a row, or `[R, G, J, S, K]` own."""

    key: jax.Array
    value: jax.Array
    mask: jax.Array  # bool, broadcasts to scores [R, J, GUQ, S] or [R, G, J, UQ, S]


def causal(
    q_NTHK: jax.Array, k_NTJK: jax.Array, v_NTJK: jax.Array, length_N: Array
) -> jax.Array:
    """Returns causal self-attention of right-padded rows, `[N, T, H, K]`.

    Real tokens need no length (padding is behind them); cuDNN uses it to skip work.
    """
    if jax.default_backend() == "gpu" and q_NTHK.dtype == jnp.bfloat16:
        length_N = jnp.maximum(length_N, 1).astype(jnp.int32)
        return jax.nn.dot_product_attention(
            q_NTHK,
            k_NTJK,
            v_NTJK,
            is_causal=True,
            key_value_seq_lengths=length_N,
            implementation="cudnn",
        )
    return grouped(q_NTHK, [], k_NTJK, v_NTJK, group_size=1)


def grouped(
    q_NUHK: jax.Array,
    shared: list[Part],
    k_NUJK: jax.Array,
    v_NUJK: jax.Array,
    group_size: int,
) -> jax.Array:
    """Returns attention to `shared` parts and causally to the own keys, `[N, U, H, K]`."""
    q_RJGUQK = split_queries(q_NUHK, k_NUJK.shape[2], group_size)
    key, value = split_keys(k_NUJK, group_size), split_keys(v_NUJK, group_size)
    per_head = q_RJGUQK.shape[4]

    def attend(block: slice) -> jax.Array:
        query = jnp.arange(block.start * per_head, block.stop * per_head) // per_head
        seen = jnp.arange(block.stop) <= query[:, None]
        own = Part(key[..., : block.stop, :], value[..., : block.stop, :], seen)
        return merged(q_RJGUQK[:, :, :, block], [*shared, own])

    return join_queries(_in_blocks(attend, q_NUHK.shape[1], MIN_BLOCK))


@jax.custom_vjp
def merged(q_RJGUQK: jax.Array, parts: list[Part]) -> jax.Array:
    """Returns softmax attention over the union of `parts`, `[R, J, G, U, Q, K]`.

    softmax over the union = sum_i exp(s_i - m) v_i / sum_i sum exp(s_i - m), with m the largest
    score of all parts. Scores and sums are float32. The backward makes the scores again from
    the merged log-sum-exp, so neither pass keeps them.
    """
    return _forward(q_RJGUQK, parts)[0]


def _forward(q_RJGUQK: jax.Array, parts: list[Part]) -> tuple[jax.Array, jax.Array]:
    """Returns the output and the log-sum-exp `[R, J, G, U, Q, 1]` over all parts."""
    shape = q_RJGUQK.shape[:-1]
    scores = [_scores(q_RJGUQK, part) for part in parts]
    tops = [_unflat(jnp.max(score, -1, keepdims=True), shape) for score in scores]
    top = functools.reduce(jnp.maximum, tops)
    total, out = 0.0, 0.0
    for score, part in zip(scores, parts, strict=True):
        weight = jnp.exp(score - _flat(top, part.key))
        total += _unflat(jnp.sum(weight, -1, keepdims=True), shape)
        out += _unflat(_dot(weight.astype(part.value.dtype), part.value), shape)
    return (out / total).astype(q_RJGUQK.dtype), top + jnp.log(total)


def _forward_and_residuals(q_RJGUQK: jax.Array, parts: list[Part]):
    out, log_total = (checkpoint_name(x, SAVED) for x in _forward(q_RJGUQK, parts))
    return out, (q_RJGUQK, parts, out, log_total)


def _backward(residuals, dout):
    """FlashAttention's backward (arXiv:2205.14135, B.2), part by part with the merged sums."""
    q, parts, out, log_total = residuals
    delta = jnp.sum(out.astype(jnp.float32) * dout, -1, keepdims=True)
    dq, dparts = 0.0, []
    for part in parts:
        q_, dout_, delta_, log_total_ = (
            _flat(x, part.key) for x in (q, dout, delta, log_total)
        )
        weight = jnp.exp(_scores(q, part) - log_total_)
        dscore = weight * (_dot(dout_, jnp.swapaxes(part.value, -1, -2)) - delta_)
        weight, dscore = weight.astype(q.dtype), dscore.astype(q.dtype)
        dq += _unflat(_dot(dscore, part.key), q.shape[:-1])
        dparts.append((_collect(dscore, q_), _collect(weight, dout_)))
    return dq.astype(q.dtype), [Part(dk, dv, None) for dk, dv in dparts]


merged.defvjp(_forward_and_residuals, _backward)


def unmasked(
    q_ZSHK: jax.Array, k_ZSHK: jax.Array, v_ZSHK: jax.Array, valid_ZS: jax.Array
) -> jax.Array:
    """Returns attention of every slot to the valid slots of its set, `[Z, S, H, K]`."""
    q_RJGUQK = split_queries(q_ZSHK, q_ZSHK.shape[2], 1)
    key, value = jnp.swapaxes(k_ZSHK, 1, 2), jnp.swapaxes(v_ZSHK, 1, 2)
    part = Part(key, value, valid_ZS[:, None, None])
    attend = lambda block: merged(q_RJGUQK[:, :, :, block], [part])
    return join_queries(_in_blocks(attend, q_ZSHK.shape[1], 4 * MIN_BLOCK))


def _in_blocks(
    attend: Callable[[slice], jax.Array], num_queries: int, min_block: int
) -> jax.Array:
    """Returns `attend` over blocks of queries, joined: few scores exist at a time."""
    size = max(min_block, -(-num_queries // MAX_BLOCKS))
    starts = range(0, num_queries, size)
    outs = [attend(slice(start, min(start + size, num_queries))) for start in starts]
    return jnp.concatenate(outs, 3) if len(outs) > 1 else outs[0]


def split_queries(q_NUHK: jax.Array, num_kv_heads: int, group_size: int) -> jax.Array:
    """Returns queries scaled by K^-0.5 as `[R, J, G, U, Q, K]`: two matmul batch axes lead."""
    num_answers, num_queries, _, width = q_NUHK.shape
    rows = num_answers // group_size
    shape = (rows, group_size, num_queries, num_kv_heads, -1, width)
    return jnp.transpose((q_NUHK * width**-0.5).reshape(shape), (0, 3, 1, 2, 4, 5))


def join_queries(x_RJGUQK: jax.Array) -> jax.Array:
    """Inverts `split_queries`' layout: `[N, U, H, K]`."""
    rows, num_kv_heads, group_size, num_queries, per_head, width = x_RJGUQK.shape
    x_RGUJQK = jnp.transpose(x_RJGUQK, (0, 2, 3, 1, 4, 5))
    return x_RGUJQK.reshape(
        rows * group_size, num_queries, num_kv_heads * per_head, width
    )


def split_keys(k_NTJK: jax.Array, group_size: int) -> jax.Array:
    """Returns own keys or values as `[R, G, J, T, K]`."""
    k_NJTK = jnp.swapaxes(k_NTJK, 1, 2)
    return k_NJTK.reshape(-1, group_size, *k_NJTK.shape[1:])


def shared_part(
    key_MJPK: jax.Array, value_MJPK: jax.Array, length_M: Array, group_R: Array | None
) -> Part:
    """Returns the keys of each row's prompt; without `group_R`, row r is prompt r's."""
    mask_MP = jnp.arange(key_MJPK.shape[2]) < jnp.asarray(length_M)[:, None]
    part = Part(key_MJPK, value_MJPK, mask_MP[:, None, None])
    if group_R is None:
        return part
    return jax.tree.map(lambda x: jnp.take(x, group_R, axis=0), part)


def _scores(q_RJGUQK: jax.Array, part: Part) -> jax.Array:
    # Tied to q, the mask is widened here; JAX would hoist that out of the scan over layers.
    q, mask = jax.lax.optimization_barrier((_flat(q_RJGUQK, part.key), part.mask))
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
    return jnp.swapaxes(_dot(jnp.swapaxes(x, -1, -2), weight), -1, -2).astype(x.dtype)
