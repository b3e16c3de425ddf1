"""What a query may see: its row's past, its prompt and its own answer, or every valid slot.

This file brings queries and keys into the shapes that `blockwise.attend` computes with, and says which
keys are visible; the softmax itself is there.

Letters besides those of types.py: U queries (tokens) of an answer, Q query heads that share a key/value
head (H = J x Q), Z sets of patches that see each other, S keys of any kind.
"""

import dataclasses
import math
from typing import Any

import chex
import jax
import jax.numpy as jnp

from vade_jax.models.qwen import blockwise, layers
from vade_jax.models.qwen.blockwise import KeySet
from vade_jax.types import Array, Pytree

LANES = 128  # of a TPU's vector: rows of tokens come in multiples of it
MAX_SPLASH_BLOCK = 512


@chex.dataclass(frozen=True)
class Cache(Pytree):
    """Keys and values of prompts, and the position at which their answers start.

    J stands before P because decoding multiplies matrices [P, K] of one head: in any other order every
    step would copy the cache first.
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
class OwnCache(Pytree):
    """Keys and values of the answers' own tokens; slots after the current step are zeros."""

    key_LNJTK: jax.Array
    value_LNJTK: jax.Array


def causal(
    q_NTHK: jax.Array,
    k_NTJK: jax.Array,
    v_NTJK: jax.Array,
    length_N: Array,
    *,
    place: layers.Placement = layers.ANYWHERE,
) -> jax.Array:
    """Returns causal self-attention of right-padded rows, `[N, T, H, K]`.

    Real tokens never see padding, which lies after them, so `length_N` changes no value that is used:
    cuDNN skips work by it.
    """
    # The hardware of the mesh decides, not that of the process: a program for GPUs can be compiled
    # where there are none. cuDNN's kernel returns no log-sum-exp that can be differentiated, so it
    # cannot be merged with a second set of keys and serves the prompts alone.
    if place.platform in ("gpu", "cuda") and q_NTHK.dtype == jnp.bfloat16:
        length_N = jnp.maximum(length_N, 1).astype(jnp.int32)  # an empty row sees one key
        return jax.nn.dot_product_attention(
            q_NTHK,
            k_NTJK,
            v_NTJK,
            is_causal=True,
            key_value_seq_lengths=length_N,
            implementation="cudnn",
        )
    if _has_splash(q_NTHK, place):
        # It gives no log-sum-exp with a gradient either.
        return place.apart(splash, q_NTHK, k_NTJK, v_NTJK)
    return grouped(q_NTHK, [], k_NTJK, v_NTJK, group_size=1, ways=place.ways)


def _has_splash(q_NTHK: jax.Array, place: layers.Placement) -> bool:
    """Says whether the TPU's kernel takes these queries."""
    is_tpu = place.platform == "tpu"
    return is_tpu and q_NTHK.dtype == jnp.bfloat16 and q_NTHK.shape[1] % LANES == 0


def splash(
    q_NTHK: jax.Array,
    k_NTJK: jax.Array,
    v_NTJK: jax.Array,
    valid_NT11: jax.Array | None = None,
    *,
    interpret: bool = False,
) -> jax.Array:
    """Returns attention of one TPU's rows and heads, by JAX's kernel (splash attention, in Pallas).

    Scores stay in the core's own memory, and no program is unrolled to skip those above the diagonal.

    Args:
        q_NTHK: queries.
        k_NTJK: keys.
        v_NTJK: values.
        valid_NT11: every slot sees the valid slots of its row, and what is not valid sees the others
            that are not. Without it attention is `causal`.
        interpret: runs the kernel anywhere, slowly.
    """
    # Here: only a TPU needs them, and they bring Pallas along.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    _, length, num_heads, _ = q_NTHK.shape
    num_kv_heads = k_NTJK.shape[2]
    block = math.gcd(length, MAX_SPLASH_BLOCK)
    names = [field.name for field in dataclasses.fields(kernels.BlockSizes)]
    blocks: dict[str, Any] = {name: block for name in names if name.startswith("block_")}
    sizes = kernels.BlockSizes(**blocks)
    square = (length, length)
    mask = masks.CausalMask(square) if valid_NT11 is None else masks.FullMask(square)
    mask = masks.MultiHeadMask([mask] * (num_heads // num_kv_heads))
    attend = kernels.make_splash_mqa_single_device(
        mask,
        block_sizes=sizes,
        residual_checkpoint_name=blockwise.SAVED,
        interpret=interpret,
    )
    q_NJQTK = split_queries(q_NTHK, num_kv_heads, 1)[:, :, 0].swapaxes(2, 3)
    k_NJTK, v_NJTK = (jnp.swapaxes(x, 1, 2) for x in (k_NTJK, v_NTJK))
    segments_NT = None
    if valid_NT11 is not None:
        segment_NT = valid_NT11[:, :, 0, 0].astype(jnp.int32)
        segments_NT = kernels.SegmentIds(segment_NT, segment_NT)
    of_heads = jax.vmap(attend, in_axes=(0, 0, 0, None))
    out_NJQTK: Any = jax.vmap(of_heads)(q_NJQTK, k_NJTK, v_NJTK, segments_NT)
    return join_queries(out_NJQTK.swapaxes(2, 3)[:, :, None])


def grouped(
    q_NUHK: jax.Array,
    shared: list[KeySet],
    k_NUJK: jax.Array,
    v_NUJK: jax.Array,
    group_size: int,
    *,
    ways: int = 1,
) -> jax.Array:
    """Returns attention of answers to shared keys and causally to their own, `[N, U, H, K]`.

    Args:
        q_NUHK: queries; `group_size` consecutive answers make a row.
        shared: sets of keys that whole rows see, or that an answer has from earlier steps.
        k_NUJK: the answers' own keys, one for each query.
        v_NUJK: their values.
        group_size: G, answers of a row.
        ways: devices that share the rows.
    """
    q_RJGUQK = split_queries(q_NUHK, k_NUJK.shape[2], group_size)
    own = blockwise.OwnKeys(*(split_keys(x, group_size) for x in (k_NUJK, v_NUJK)))
    block = blockwise.MIN_BLOCK
    return join_queries(blockwise.attend(q_RJGUQK, shared, own, min_block=block, ways=ways))


def unmasked(
    q_ZSHK: jax.Array,
    k_ZSHK: jax.Array,
    v_ZSHK: jax.Array,
    valid_ZS: jax.Array,
    *,
    place: layers.Placement = layers.ANYWHERE,
) -> jax.Array:
    """Returns attention of every slot of a set to the set's valid slots, `[Z, S, H, K]`.

    What a slot that is not valid gets is finite, and means nothing.
    """
    if _has_splash(q_ZSHK, place):  # whole pictures: a window has fewer slots than lanes
        sets = q_ZSHK, k_ZSHK, v_ZSHK, valid_ZS[:, :, None, None]
        return place.apart(splash, *sets, split_heads=False)  # their number need not divide
    q_RJGUQK = split_queries(q_ZSHK, q_ZSHK.shape[2], 1)
    key, value = jnp.swapaxes(k_ZSHK, 1, 2), jnp.swapaxes(v_ZSHK, 1, 2)
    keys = KeySet(key, value, valid_ZS[:, None, None])
    # Small blocks pay where a block sees fewer keys than the next one. Here all see the same.
    block = 4 * blockwise.MIN_BLOCK
    return join_queries(blockwise.attend(q_RJGUQK, [keys], None, min_block=block, ways=place.ways))


def split_queries(q_NUHK: jax.Array, num_kv_heads: int, group_size: int) -> jax.Array:
    """Returns queries times K^-0.5 as `[R, J, G, U, Q, K]`.

    R and J lead: they are the batch axes of the product with a prompt's keys `[R, J, P, K]`, and G, U, Q
    together its rows. So the queries of all answers and all heads of a group share one matmul, and no
    key is copied for them.
    """
    num_answers, num_queries, _, width = q_NUHK.shape
    rows = num_answers // group_size
    shape = (rows, group_size, num_queries, num_kv_heads, -1, width)
    return jnp.transpose((q_NUHK * width**-0.5).reshape(shape), (0, 3, 1, 2, 4, 5))


def join_queries(x_RJGUQK: jax.Array) -> jax.Array:
    """Returns `[N, U, H, K]` of the order of axes that `split_queries` makes."""
    rows, num_kv_heads, group_size, num_queries, per_head, width = x_RJGUQK.shape
    x_RGUJQK = jnp.transpose(x_RJGUQK, (0, 2, 3, 1, 4, 5))
    return x_RGUJQK.reshape(rows * group_size, num_queries, num_kv_heads * per_head, width)


def split_keys(k_NTJK: jax.Array, group_size: int) -> jax.Array:
    """Returns own keys or values as `[R, G, J, T, K]`."""
    k_NJTK = jnp.swapaxes(k_NTJK, 1, 2)
    return k_NJTK.reshape(-1, group_size, *k_NJTK.shape[1:])


def prompt_keys(key_RJPK: jax.Array, value_RJPK: jax.Array, length_R: Array) -> KeySet:
    """Returns each row's prompt as keys to see, of which the first `length_R` are real."""
    mask_RP = jnp.arange(key_RJPK.shape[2]) < jnp.asarray(length_R)[:, None]
    return KeySet(key_RJPK, value_RJPK, mask_RP[:, None, None])
