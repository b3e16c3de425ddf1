"""What queries see: a row's own past, their prompt and their own, or every valid slot.

An answer's query sees its prompt's keys (shared by the row) and its own; blockwise.py merges them.

Letters beside types.py: U queries of an answer, Q query heads of a key/value head (H = J x Q).
"""

import chex
import jax
import jax.numpy as jnp

from vade_jax.models.qwen25vl import blockwise
from vade_jax.models.qwen25vl.blockwise import Part
from vade_jax.types import Array


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


def causal(
    q_NTHK: jax.Array,
    k_NTJK: jax.Array,
    v_NTJK: jax.Array,
    length_N: Array,
    *,
    ways: int = 1,
) -> jax.Array:
    """Returns causal self-attention of right-padded rows, `[N, T, H, K]`.

    Real tokens need no length (padding is behind them); cuDNN uses it to skip work. `ways`: devices
    that share the rows.
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
    return grouped(q_NTHK, [], k_NTJK, v_NTJK, group_size=1, ways=ways)


def grouped(
    q_NUHK: jax.Array,
    shared: list[Part],
    k_NUJK: jax.Array,
    v_NUJK: jax.Array,
    group_size: int,
    *,
    ways: int = 1,
) -> jax.Array:
    """Returns attention to `shared` parts and causally to the own keys, `[N, U, H, K]`."""
    q_RJGUQK = split_queries(q_NUHK, k_NUJK.shape[2], group_size)
    own = blockwise.Own(*(split_keys(x, group_size) for x in (k_NUJK, v_NUJK)))
    block = blockwise.MIN_BLOCK
    return join_queries(
        blockwise.attend(q_RJGUQK, shared, own, min_block=block, ways=ways)
    )


def unmasked(
    q_ZSHK: jax.Array,
    k_ZSHK: jax.Array,
    v_ZSHK: jax.Array,
    valid_ZS: jax.Array,
    *,
    ways: int = 1,
) -> jax.Array:
    """Returns attention of every slot to the valid slots of its set, `[Z, S, H, K]`."""
    q_RJGUQK = split_queries(q_ZSHK, q_ZSHK.shape[2], 1)
    key, value = jnp.swapaxes(k_ZSHK, 1, 2), jnp.swapaxes(v_ZSHK, 1, 2)
    part = Part(key, value, valid_ZS[:, None, None])
    block = 4 * blockwise.MIN_BLOCK
    return join_queries(
        blockwise.attend(q_RJGUQK, [part], None, min_block=block, ways=ways)
    )


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


def shared_part(key_RJPK: jax.Array, value_RJPK: jax.Array, length_R: Array) -> Part:
    """Returns the keys of each row's prompt, of which `length_R` are real."""
    mask_RP = jnp.arange(key_RJPK.shape[2]) < jnp.asarray(length_R)[:, None]
    return Part(key_RJPK, value_RJPK, mask_RP[:, None, None])
