"""The three kinds of attention: causal over a row, an answer over its prompt and itself, and unmasked.

Each function brings queries and keys into the shapes of `blockwise.attend` and says which keys a query
may see. `blockwise` computes the softmax. On GPUs and TPUs, library kernels replace it where they can.

Letters that types.py does not have: U queries (tokens) of an answer, Q query heads that share a key/value
head (H = J x Q), Z sets of patches that see each other, S keys of any kind.
"""

import dataclasses
import math
import operator
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp

from vade_jax.models.qwen import blockwise, deltanet, layers
from vade_jax.models.qwen.blockwise import KeySet
from vade_jax.types import Array, Pytree

LANES = 128  # lanes of a TPU's vector; the kernel needs rows of a multiple of this many tokens
MAX_SPLASH_BLOCK = 512
MAX_CUDNN_WIDTH = 128  # of a head; JAX allows 256 only where it sees a Hopper GPU


@chex.dataclass(frozen=True)
class Cache(Pytree):
    """Keys and values of prompts, states of linear layers, and the position at which their answers start.

    J comes before P because decoding multiplies by the matrices [P, K] of single heads. With any other
    order of axes, every step would first copy the cache.
    """

    key_LMJPK: Array
    value_LMJPK: Array
    length_M: Array  # int32
    next_position_M: Array  # int32
    # Or `deltanet.State` with two axes before M: block of layers, place in the block
    linear: Any = None

    def take(self, index_R: Array) -> "Cache":
        """Returns a cache with the prompts `index_R`, one for each row."""
        return Cache(
            key_LMJPK=jnp.take(self.key_LMJPK, index_R, axis=1),
            value_LMJPK=jnp.take(self.value_LMJPK, index_R, axis=1),
            length_M=jnp.take(self.length_M, index_R, axis=0),
            next_position_M=jnp.take(self.next_position_M, index_R, axis=0),
            linear=jax.tree.map(lambda x: jnp.take(x, index_R, axis=2), self.linear),
        )

    def apart(self) -> "Rows":
        """Returns the keys of each layer, for a loop over tokens: see `text.Decoder.apart`.

        Keys are transposed once, before the loop: a CPU multiplies by them faster.
        """
        prompts: list[KeySet | deltanet.State] = []
        for i, (key_MJPK, value_MJPK) in enumerate(
            zip(self.key_LMJPK, self.value_LMJPK, strict=True)
        ):
            if self.linear is not None:
                before = range(self.linear.tail_NXC.shape[1])
                prompts += [jax.tree.map(operator.itemgetter((i, j)), self.linear) for j in before]
            key_MJKP = jax.lax.optimization_barrier(jnp.swapaxes(key_MJPK, -1, -2))
            prompts.append(prompt_keys(jnp.swapaxes(key_MJKP, -1, -2), value_MJPK, self.length_M))
        return Rows(prompts, self.next_position_M)


class Rows(NamedTuple):
    """What the answers in a row share: each layer's keys or state of their prompt, and where they start."""

    prompts: list[KeySet | deltanet.State]
    next_position_R: Array


def causal(
    q_NTHK: jax.Array,
    k_NTJK: jax.Array,
    v_NTJK: jax.Array,
    length_N: Array,
    *,
    place: layers.Placement = layers.ANYWHERE,
) -> jax.Array:
    """Returns causal self-attention of right-padded rows, `[N, T, H, K]`.

    Padding comes after the real tokens, so these never see it. `length_N` therefore does not change any
    value that is used; cuDNN uses it to skip work.
    """
    # The platform of the mesh decides, not that of the process: a program for GPUs can be compiled on a
    # machine without one. cuDNN's kernel does not return a log-sum-exp that can be differentiated, so its
    # result cannot be merged with a second set of keys. It is used for prompts only.
    fits_cudnn = q_NTHK.dtype == jnp.bfloat16 and q_NTHK.shape[-1] <= MAX_CUDNN_WIDTH
    if place.platform in ("gpu", "cuda") and fits_cudnn:
        length_N = jnp.maximum(length_N, 1).astype(jnp.int32)  # an empty row gets one visible key
        return jax.nn.dot_product_attention(
            q_NTHK,
            k_NTJK,
            v_NTJK,
            is_causal=True,
            key_value_seq_lengths=length_N,
            implementation="cudnn",
        )
    if _has_splash(q_NTHK, place):
        # Splash attention does not return a log-sum-exp with a gradient either.
        return place.apart(splash, q_NTHK, k_NTJK, v_NTJK)
    return grouped(q_NTHK, [], k_NTJK, v_NTJK, group_size=1, place=place)


def _has_splash(q_NTHK: jax.Array, place: layers.Placement) -> bool:
    """Returns whether JAX's TPU kernel (splash attention) can be used for these queries."""
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
    """Returns attention of one TPU's rows and heads, by JAX's Pallas kernel (splash attention).

    The kernel keeps scores in the core's own memory. It skips those above the diagonal without an
    unrolled program.

    Args:
        q_NTHK: queries.
        k_NTJK: keys.
        v_NTJK: values.
        valid_NT11: if given, valid slots see the valid slots of their row, and the other slots see each
            other. None: attention is causal.
        interpret: run the kernel in Pallas's interpreter, on any platform but slowly.
    """
    # Imported here because only TPUs need them, and they import Pallas.
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    _, length, num_heads, _ = q_NTHK.shape
    num_kv_heads = k_NTJK.shape[2]
    # Blocks must divide the rows. As rows are multiples of LANES, a block has at least LANES tokens.
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
    # The kernel handles one key/value head with the Q query heads that share it. It is mapped over rows and
    # key/value heads.
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
    place: layers.Placement = layers.ANYWHERE,
) -> jax.Array:
    """Returns attention of answers to given sets of keys, and causally to their own, `[N, U, H, K]`.

    Args:
        q_NUHK: queries; `group_size` consecutive answers form a row.
        shared: sets of keys, of an entire row or of each answer from earlier steps.
        k_NUJK: the answers' own keys, one for each query.
        v_NUJK: their values.
        group_size: G, the number of answers in a row.
        place: of the rows.
    """
    q_RJGUQK = split_queries(q_NUHK, k_NUJK.shape[2], group_size)
    own = blockwise.OwnKeys(*(split_keys(x, group_size) for x in (k_NUJK, v_NUJK)))
    block, on_cpu = blockwise.MIN_BLOCK, place.platform == "cpu"
    return join_queries(
        blockwise.attend(q_RJGUQK, shared, own, min_block=block, ways=place.ways, on_cpu=on_cpu)[0]
    )


def to_sets(q_NUHK: jax.Array, key_sets: list[KeySet], *, ways: int) -> jax.Array:
    """Returns attention of answers' queries to sets of keys alone, `[N, U, H, K]`.

    Args:
        q_NUHK: queries of the answers in R rows.
        key_sets: keys of whole rows, `[R, J, S, K]`, or of each answer, `[R, J, G, S, K]`.
        ways: number of devices that share the rows.
    """
    rows, num_kv_heads = key_sets[0].key.shape[:2]
    q_RJGUQK = split_queries(q_NUHK, num_kv_heads, len(q_NUHK) // rows)
    block = blockwise.MIN_BLOCK
    return join_queries(blockwise.attend(q_RJGUQK, key_sets, None, min_block=block, ways=ways)[0])


def unmasked(
    q_ZSHK: jax.Array,
    k_ZSHK: jax.Array,
    v_ZSHK: jax.Array,
    valid_ZS: jax.Array,
    *,
    known: Any = None,
    place: layers.Placement = layers.ANYWHERE,
) -> tuple[jax.Array, jax.Array]:
    """Returns attention of every slot of a set to the valid slots of that set, `[Z, S, H, K]`, and L.

    Slots that are not valid get finite garbage. L is the log-sum-exp of the scores, `[Z, S, H, 1]`.
    `known` is what an earlier call returned; then only gradients are computed, but the TPU's kernel has no
    use for it, nor an L.
    """
    if _has_splash(q_ZSHK, place):  # only for whole images: a window has fewer slots than lanes
        sets = q_ZSHK, k_ZSHK, v_ZSHK, valid_ZS[:, :, None, None]
        # Heads stay together: the vision tower's weights are not split over `tensor`, and the number of
        # heads need not be divisible by it.
        out_ZSHK = place.apart(splash, *sets, split_heads=False)
        return out_ZSHK, jnp.zeros((*q_ZSHK.shape[:3], 1))
    q_RJGUQK = split_queries(q_ZSHK, q_ZSHK.shape[2], 1)
    key, value = jnp.swapaxes(k_ZSHK, 1, 2), jnp.swapaxes(v_ZSHK, 1, 2)
    keys = KeySet(key, value, valid_ZS[:, None, None])
    # Small blocks save work only if a block sees fewer keys than the next one. Here all see the same keys.
    block = 4 * blockwise.MIN_BLOCK
    known = jax.tree.map(lambda x: jnp.swapaxes(x, 1, 2)[:, :, None, :, None], known)
    how: Any = {"min_block": block, "ways": place.ways, "on_cpu": place.platform == "cpu"}
    out, log_total = blockwise.attend(q_RJGUQK, [keys], None, known=known, **how)
    return join_queries(out), join_queries(log_total)


def split_queries(q_NUHK: jax.Array, num_kv_heads: int, group_size: int) -> jax.Array:
    """Returns queries times K^-0.5 as `[R, J, G, U, Q, K]`.

    R and J come first because they are the batch axes of the matmul with the prompt's keys
    `[R, J, P, K]`; G, U and Q together are its rows. So one matmul serves the queries of all answers in a
    row and of all heads that share a key head, without a copy of any key.
    """
    num_answers, num_queries, _, width = q_NUHK.shape
    rows = num_answers // group_size
    shape = (rows, group_size, num_queries, num_kv_heads, -1, width)
    return jnp.transpose((q_NUHK * width**-0.5).reshape(shape), (0, 3, 1, 2, 4, 5))


def join_queries(x_RJGUQK: jax.Array) -> jax.Array:
    """Inverts the order of axes of `split_queries`: returns `[N, U, H, K]`."""
    rows, num_kv_heads, group_size, num_queries, per_head, width = x_RJGUQK.shape
    x_RGUJQK = jnp.transpose(x_RJGUQK, (0, 2, 3, 1, 4, 5))
    return x_RGUJQK.reshape(rows * group_size, num_queries, num_kv_heads * per_head, width)


def split_keys(k_NTJK: jax.Array, group_size: int) -> jax.Array:
    """Returns the answers' own keys or values as `[R, J, G, T, K]`."""
    k_RGTJK = k_NTJK.reshape(-1, group_size, *k_NTJK.shape[1:])
    return jnp.transpose(k_RGTJK, (0, 3, 1, 2, 4))


def prompt_keys(key_RJPK: jax.Array, value_RJPK: jax.Array, length_R: Array) -> KeySet:
    """Returns the keys of each row's prompt, with a mask that shows only the first `length_R`."""
    mask_RP = jnp.arange(key_RJPK.shape[2]) < jnp.asarray(length_R)[:, None]
    return KeySet(key_RJPK, value_RJPK, mask_RP[:, None, None])
