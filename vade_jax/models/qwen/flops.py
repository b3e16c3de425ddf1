"""Counts the useful FLOPs of a model from its sizes and the lengths of its sequences.

A multiply-add counts as 2 FLOPs, a backward pass as two forward passes. Only matmuls are counted:
projections, MLPs, attention over the pairs of a query and a key that it sees, the chunks of linear layers,
and the head. Padding, masked pairs, and what is computed a second time (attention scores, remat) are not
useful work.
"""

import numpy as np

from vade_jax.models.qwen import config, deltanet
from vade_jax.types import Array

BACKWARD = 3  # the cost of forward and backward together, in forward passes


def decoder(shape: config.TextConfig, length_M: Array, length_N: Array, group_N: Array) -> int:
    """Returns the FLOPs of a forward pass over answers and their prompts, where each prompt runs once.

    Args:
        shape: sizes of the decoder.
        length_M: number of tokens of each prompt.
        length_N: number of tokens of each answer.
        group_N: the prompt of each answer.
    """
    length_M, length_N = np.asarray(length_M, np.int64), np.asarray(length_N, np.int64)
    pairs = triangle(length_M).sum() + triangle(length_N).sum()
    pairs += (length_N * length_M[group_N]).sum()
    work = layers(shape, length_M.sum() + length_N.sum())
    return int(work + attention(shape, pairs) + head(shape, length_N.sum()))


def layers(shape: config.TextConfig, num_tokens: int) -> int:
    """Returns the FLOPs of all projections, MLPs and linear layers."""
    kv_width = shape.num_kv_heads * shape.head_width
    num_full = shape.num_layers // shape.interval
    work = num_full * 2 * shape.width * (shape.query_width + kv_width)
    work += shape.num_layers * 3 * shape.width * shape.mlp_width
    if linear := shape.linear:
        work += num_full * shape.width * shape.query_width  # the gates
        projections = shape.width * (linear.channels + 2 * linear.value_size + 2 * linear.num_heads)
        K, V = linear.key_width, linear.value_width
        # Of the pairs in a chunk half are seen: k k^T, q k^T, the solve, and what is added up of N.
        chunk = deltanet.CHUNK * (3 * K + 2 * V) // 2 + 3 * K * V
        work += (shape.num_layers - num_full) * (projections + linear.num_heads * chunk)
    return 2 * work * num_tokens


def attention(shape: config.TextConfig, num_pairs: int) -> int:
    """Returns the FLOPs of scores and weighted sums of values, for this many (query, seen key) pairs."""
    return 4 * shape.num_layers // shape.interval * shape.query_width * num_pairs


def head(shape: config.TextConfig, num_tokens: int) -> int:
    """Returns the FLOPs of the logits of this many tokens."""
    return 2 * shape.width * shape.vocab_size * num_tokens


def vision(
    shape: config.VisionConfig,
    out_width: int,
    num_patches: int,
    *,
    image_patches: int = 64,
) -> int:
    """Returns the FLOPs for `num_patches` patches, in images of `image_patches` each.

    `out_width` is the width of the decoder. In full blocks, and in all of a plain tower, a patch sees its
    whole image.
    """
    is_plain = shape.kind == "plain"
    block = 4 * shape.width**2 + (2 if is_plain else 3) * shape.width * shape.mlp_width
    num_full = shape.depth if is_plain else len(shape.full_blocks)
    keys = (shape.depth - num_full) * min(64, image_patches) + num_full * image_patches
    num_mergers = 1 + len(shape.deepstack)
    cell = num_mergers * 4 * shape.width * (4 * shape.width + out_width)
    patch = 3 * shape.patch_size**2 * shape.width
    per_patch = patch + shape.depth * block + 2 * shape.width * keys
    return int(2 * (per_patch + cell / 4) * num_patches)


def triangle(length):
    """Returns the number of (query, seen key) pairs in a causal sequence of `length` tokens."""
    return length * (length + 1) // 2
