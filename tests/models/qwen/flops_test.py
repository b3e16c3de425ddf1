"""Useful FLOPs, counted by hand."""

import dataclasses

import jax
import numpy as np
import pytest

from tests.models.qwen import inputs
from vade_jax.models.qwen import config, flops, model, presets

# A layer's kernels: 128 x (128 + 32 + 32 + 128) for attention and 3 x 128 x 64 for the MLP.
SHAPE = config.TextConfig(
    vocab_size=64,
    width=128,
    num_layers=2,
    num_heads=4,
    num_kv_heads=1,
    mlp_width=64,
    mrope_section=(4, 6, 6),
)
LAYER = 65_536


def test_one_prompt_and_two_answers():
    """A prompt of 3 tokens, two answers of 2."""
    layers = 2 * 2 * LAYER * (3 + 2 * 2)
    pairs = (1 + 2 + 3) + 2 * (2 * 3 + 1 + 2)
    attention = 2 * (2 * 2 * 128) * pairs
    head = 2 * 128 * 64 * 4
    assert flops.decoder(SHAPE, [3], [2, 2], [0, 0]) == layers + attention + head


def test_lengths_that_differ():
    """Prompts of 3 and 1 tokens; answers of 1 to the first, of 2 to the second."""
    layers = 2 * 2 * LAYER * (3 + 1 + 1 + 2)
    pairs = (1 + 2 + 3) + 1 + (3 + 1) + (2 * 1 + 1 + 2)
    attention = 2 * (2 * 2 * 128) * pairs
    head = 2 * 128 * 64 * 3
    assert flops.decoder(SHAPE, [3, 1], [1, 2], [0, 1]) == layers + attention + head


def test_heads_wider_than_their_share():
    """4 heads of 64 in a width of 128: q and o are 128 x 256, k and v 128 x 64."""
    shape = dataclasses.replace(SHAPE, own_head_width=64, mrope_section=(32, 0, 0))
    layer = 2 * 128 * 256 + 2 * 128 * 64 + 3 * 128 * 64
    found = flops.decoder(shape, [3], [0], [0])
    assert found == 2 * 2 * layer * 3 + 2 * (2 * 2 * 256) * (1 + 2 + 3)


def test_blocks_of_linear_layers():
    """Of 4 layers 2 have attention, with a gate; a key head of 8 serves two value heads of 16."""
    linear = config.LinearConfig(num_key_heads=1, num_heads=2, key_width=8, value_width=16)
    shape = dataclasses.replace(SHAPE, num_layers=4, interval=2, linear=linear)
    projections = 128 * (8 + 8 + 32) + 128 * 32 + 2 * 128 * 2 + 32 * 128  # qkv, gate, rates, output
    chunks = 2 * (64 / 2 * (8 + 8 + (8 + 16) + 16) + 3 * 8 * 16)
    per_token = 2 * (LAYER + 128 * 128) + 2 * (projections + chunks + 3 * 128 * 64)
    found = flops.decoder(shape, [3], [0], [0])
    assert found == 2 * per_token * 3 + 2 * (2 * 2 * 128) * (1 + 2 + 3)


def test_a_hybrid_costs_what_xla_counts():
    """A prompt of one chunk, in one block of layers: XLA counts a loop's body once, and what is masked."""
    text = dataclasses.replace(presets.PRESETS["tiny_qwen3_5"].text, interval=2, num_layers=2)
    shape = config.Config(
        dataclasses.replace(text, width=512, mlp_width=1024), None, tie_embeddings=True
    )
    rng = np.random.default_rng(0)
    prompts = inputs.batch([inputs.example(rng, [], 0, 64)], -1)
    hidden = lambda params: model.merge(model.graph(shape), params).hidden(prompts, remat=False)
    counted = jax.jit(hidden).lower(model.abstract(shape)).cost_analysis()["flops"]
    assert flops.decoder(shape.text, [64], [0], [0]) == pytest.approx(counted, rel=0.1)


def test_full_blocks_see_the_whole_image():
    # Width 8, one of two blocks full, no MLP to speak of: an image of 128 patches.
    shape = config.VisionConfig(depth=2, width=8, num_heads=1, mlp_width=1, full_blocks=(1,))
    near, far = (flops.vision(shape, 4, 128, image_patches=n) for n in (64, 128))
    assert far - near == 128 * 2 * 2 * 8 * (128 - 64)


def test_a_plain_tower_by_hand():
    """Width 8, two blocks with an MLP of 16, an image of 8 patches; one more merger for DeepStack."""
    shape = config.VisionConfig(2, 8, 1, 16, table_side=2, deepstack=(0,))
    embed, blocks = 768 * 8, 2 * (4 * 8 * 8 + 2 * 8 * 16)
    attention = 2 * 2 * 8 * 8  # scores and sums over 8 keys of width 8, in two blocks
    merger = 32 * 32 + 32 * 4
    found = flops.vision(shape, 4, 8, image_patches=8)
    assert found == 2 * (8 * (embed + blocks + attention) + 2 * (2 * merger))
