"""Attention over one or several sets of keys, merged in differentiable code.

An answer's query sees its prompt's keys (shared by the row) and its own. The parts are merged by their
shared max and their sums of exponentials, so no key is copied per answer and no [N, P + T] mask
exists. `jax.nn.dot_product_attention(return_residual=True)` must not be used for this: it stops the
gradient of the log-sum-exp.

Letters beside types.py: U queries of an answer, Q query heads of a key/value head (H = J x Q).
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from vade_jax.types import Array

MASKED = -1e30  # finite: a query that sees nothing gets a mean of garbage, not NaN
MIN_BLOCK, MAX_BLOCKS = (
    128,
    8,
)  # causal query blocks; each one is unrolled in the program


@chex.dataclass(frozen=True)
class Cache:
    """Keys and values of prompts, and where their answers start."""

    key_LMPJK: Array
    value_LMPJK: Array
    length_M: Array  # int32
    next_position_M: Array  # int32


@chex.dataclass(frozen=True)
class OwnCache:
    """Keys and values of the answers' own tokens."""

    key_LNTJK: Array
    value_LNTJK: Array


class Part(NamedTuple):
    """Keys that queries see: `[R, J, S, K]` shared by a row, or `[R, J, G, S, K]` own."""

    key: jax.Array
    value: jax.Array
    mask: jax.Array | None  # bool, broadcasts to scores [R, J, G, U, Q, S]


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
    num_queries, num_kv_heads = k_NUJK.shape[1:3]
    q_RJGUQK = split_queries(q_NUHK, num_kv_heads, group_size)
    key, value = split_keys(k_NUJK, group_size), split_keys(v_NUJK, group_size)
    block = max(MIN_BLOCK, -(-num_queries // MAX_BLOCKS))
    blocks = []
    for start in range(0, num_queries, block):
        end = min(start + block, num_queries)
        seen_US = jnp.arange(end) <= jnp.arange(start, end)[:, None]
        own = Part(key[:, :, :, :end], value[:, :, :, :end], seen_US[:, None])
        blocks.append(merged(q_RJGUQK[:, :, :, start:end], [*shared, own]))
    return join_queries(jnp.concatenate(blocks, 3) if len(blocks) > 1 else blocks[0])


def merged(q_RJGUQK: jax.Array, parts: list[Part]) -> jax.Array:
    """Returns softmax attention over the union of `parts`, `[R, J, G, U, Q, K]`.

    softmax over the union = sum_i exp(s_i - m) v_i / sum_i sum exp(s_i - m), with m the
    largest score of all parts. Scores, max and sums are float32.
    """
    scores = [_scores(q_RJGUQK, part) for part in parts]
    tops = [jnp.max(score, -1, keepdims=True) for score in scores]
    top = jax.lax.stop_gradient(tops[0])
    for other in tops[1:]:
        top = jnp.maximum(top, jax.lax.stop_gradient(other))
    weights = [jnp.exp(score - top) for score in scores]
    total = sum(jnp.sum(weight, -1, keepdims=True) for weight in weights)
    out = sum(
        _gather(weight, part.value) for weight, part in zip(weights, parts, strict=True)
    )
    return (out / total).astype(q_RJGUQK.dtype)


def unmasked(
    q_ZSHK: jax.Array, k_ZSHK: jax.Array, v_ZSHK: jax.Array, valid_ZS: jax.Array
) -> jax.Array:
    """Returns attention of every slot to the valid slots of its set, `[Z, S, H, K]`."""
    q_RJGUQK = split_queries(q_ZSHK, q_ZSHK.shape[2], 1)
    part = Part(
        jnp.swapaxes(k_ZSHK, 1, 2),
        jnp.swapaxes(v_ZSHK, 1, 2),
        valid_ZS[:, None, None, None, None],
    )
    return join_queries(merged(q_RJGUQK, [part]))


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
    """Returns own keys or values as `[R, J, G, T, K]`."""
    k_RGTJK = k_NTJK.reshape(-1, group_size, *k_NTJK.shape[1:])
    return jnp.transpose(k_RGTJK, (0, 3, 1, 2, 4))


def shared_part(
    key_MPJK: jax.Array, value_MPJK: jax.Array, length_M: Array, group_R: Array | None
) -> Part:
    """Returns the keys of each row's prompt; without `group_R`, row r is prompt r's."""
    mask_MP = jnp.arange(key_MPJK.shape[1]) < jnp.asarray(length_M)[:, None]
    part = Part(
        jnp.swapaxes(key_MPJK, 1, 2),
        jnp.swapaxes(value_MPJK, 1, 2),
        mask_MP[:, None, None, None, None],
    )
    if group_R is None:
        return part
    return jax.tree.map(lambda x: jnp.take(x, group_R, axis=0), part)


def _scores(q_RJGUQK: jax.Array, part: Part) -> jax.Array:
    spec = "rjguqk,rjsk->rjguqs" if part.key.ndim == 4 else "rjguqk,rjgsk->rjguqs"
    score = jnp.einsum(spec, q_RJGUQK, part.key, preferred_element_type=jnp.float32)
    return score if part.mask is None else jnp.where(part.mask, score, MASKED)


def _gather(weight_RJGUQS: jax.Array, value: jax.Array) -> jax.Array:
    spec = "rjguqs,rjsk->rjguqk" if value.ndim == 4 else "rjguqs,rjgsk->rjguqk"
    weight = weight_RJGUQS.astype(value.dtype)
    return jnp.einsum(spec, weight, value, preferred_element_type=jnp.float32)
