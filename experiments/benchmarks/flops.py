"""Useful work, counted from shapes: the numerators of every floor.

A multiply-add is 2 FLOPs; a backward pass is twice its forward. What an implementation computes again
(attention scores, remat) is not useful work and not counted.
"""

import jax

from vade_jax.models.qwen25vl import config
from vade_jax.types import Params

BACKWARD = 3  # forward and backward, in forwards


def layers(shape: config.TextConfig, num_tokens: int) -> int:
    """Returns the FLOPs of all projections and MLPs."""
    kv_width = shape.num_kv_heads * shape.head_width
    attention = 2 * shape.width * (shape.width + kv_width)
    mlp = 3 * shape.width * shape.mlp_width
    return 2 * shape.num_layers * (attention + mlp) * num_tokens


def attention(shape: config.TextConfig, num_pairs: int) -> int:
    """Returns the FLOPs of scores and weighted values over (query, seen key) pairs."""
    return 4 * shape.num_layers * shape.width * num_pairs


def head(shape: config.TextConfig, num_tokens: int) -> int:
    """Returns the FLOPs of the logits."""
    return 2 * shape.width * shape.vocab_size * num_tokens


def vision(
    shape: config.VisionConfig,
    out_width: int,
    num_patches: int,
    *,
    image_patches: int = 64,
) -> int:
    """Returns the FLOPs on images of `image_patches` each, which the full blocks see whole."""
    block = 4 * shape.width**2 + 3 * shape.width * shape.mlp_width
    num_full = len(shape.full_blocks)
    keys = (shape.depth - num_full) * min(64, image_patches) + num_full * image_patches
    cell = 4 * shape.width * (4 * shape.width + out_width)
    per_patch = 588 * shape.width + shape.depth * block + 2 * shape.width * keys
    return int(2 * (per_patch + cell / 4) * num_patches)


def grouped(
    shape: config.TextConfig, prompts: int, answers: int, *, prompt: int, answer: int
) -> int:
    """Returns the FLOPs of a forward in which every prompt runs once."""
    pairs = prompts * triangle(prompt)
    pairs += answers * (answer * prompt + triangle(answer))
    tokens = prompts * prompt + answers * answer
    return (
        layers(shape, tokens) + attention(shape, pairs) + head(shape, answers * answer)
    )


def plain(shape: config.TextConfig, answers: int, *, prompt: int, answer: int) -> int:
    """Returns the FLOPs of a forward with one row an answer."""
    return grouped(shape, answers, answers, prompt=prompt, answer=answer)


def triangle(length: int) -> int:
    """Returns the pairs of a causal sequence."""
    return length * (length + 1) // 2


def num_params(params: Params) -> int:
    """Returns the number of weights of the decoder, embedding included."""
    return sum(x.size for x in jax.tree.leaves([params["text"], params["embedding"]]))
