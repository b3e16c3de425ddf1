"""Pixels, what attention sees, learned positions, and what is kept for the backward pass."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from tests.models.qwen import inputs, oracle
from vade_jax.models.qwen import config, layers, model, presets, vision, weights

TINY = presets.PRESETS["tiny"]


def test_every_level_of_every_channel_is_bit_equal_to_the_processor():
    patch = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 588, 1)
    image = np.repeat(np.arange(256, dtype=np.uint8), 3 * 49).reshape(16, -1, 3)
    expected = (image.astype(np.float64) * (1 / 255)).astype(np.float32)
    expected = ((expected - inputs.MEAN[14]) / inputs.STD[14]).reshape(256, 49, 3)
    got = np.asarray(jax.jit(vision.normalize)(patch)).reshape(256, 3, 196)
    for channel in range(3):
        np.testing.assert_array_equal(got[:, channel, 0], expected[:, 0, channel])
        np.testing.assert_array_equal(got[:, channel], got[:, channel, :1].repeat(196, 1))


def test_windows_and_images_are_separate_where_they_should_be():
    """One changed pixel: with windows only its window moves; with a full block its image does."""
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (112, 224, 3), dtype=np.uint8) for _ in range(2)]
    before = inputs.layout(images)
    images[0] = images[0].copy()
    images[0][:14, :14] = 255 - images[0][:14, :14]
    after = inputs.layout(images)
    for full_blocks, moved in (
        ((), [[True, False], [False, False]]),
        ((1,), [[True, True], [False, False]]),
    ):
        shape = oracle.blocks(TINY, depth=2, full_blocks=full_blocks)
        params = weights.to_params(shape, oracle.random_tensors(shape, 0))
        qwen = model.merge(model.graph(shape), params)
        features = jax.jit(lambda images, qwen=qwen: qwen.image_features(images).cell_BWCD)
        change_BW = np.abs(features(after) - features(before)).max((-1, -2)) > 0
        np.testing.assert_array_equal(change_BW, moved)


def test_levels_of_a_plain_tower_are_bit_equal_to_the_processor():
    patch = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 768, 1)
    level = (np.arange(256) * (1 / 255)).astype(np.float32)
    expected = ((level - np.float32(0.5)) / np.float32(0.5))[:, None].repeat(768, 1)
    np.testing.assert_array_equal(jax.jit(vision.normalize)(patch), expected)


@pytest.mark.parametrize("side", [6, 8])
def test_positions_are_those_of_transformers_entry_by_entry(side):
    """Tables that are shrunk or stretched; row i of the table is the unit vector i."""
    utils = pytest.importorskip("transformers.vision_utils")
    torch = pytest.importorskip("torch")
    sizes = [(3, 5), (6, 1), (2, 9)]  # in cells
    images = inputs.layout([np.zeros((32 * r, 32 * c, 3), np.uint8) for r, c in sizes], size=16)
    shape = config.VisionConfig(4, side * side, 1, 4, table_side=side)
    positions = vision.Positions(shape, layers.Make(nnx.Rngs(0), jnp.float32, jnp.float32))
    positions.table[...] = jnp.eye(side * side)
    found_BWSD = np.asarray(jax.jit(positions)(images))
    grid = torch.tensor([[1, 2 * r, 2 * c] for r, c in sizes])
    index_N4, weight_N4 = utils.get_vision_interpolation_indices_and_weights(
        grid, side, "bilinear", align_corners=True, spatial_merge_size=2
    )
    expected_ND = np.zeros((len(index_N4), side * side), np.float32)
    for tap in range(4):  # two taps may be the same entry, at the end of the table
        np.add.at(
            expected_ND, (np.arange(len(index_N4)), index_N4[:, tap].numpy()), weight_N4[:, tap]
        )
    start = 0
    for b, (rows, cols) in enumerate(sizes):
        places = inputs.cells(np.zeros((32 * rows, 32 * cols, 3)), 16)
        patches_ND = np.concatenate([found_BWSD[b, w, 4 * c : 4 * c + 4] for w, c in places])
        np.testing.assert_array_equal(patches_ND, expected_ND[start : start + len(patches_ND)])
        start += len(patches_ND)


def test_a_plain_tower_keeps_its_inputs_and_its_deepstack_once():
    """For the backward pass: a block's input and attention's output, and of DeepStack no copy a block."""
    images = inputs.layout([np.zeros((128, 256, 3), np.uint8)] * 2, size=16)
    shape = oracle.blocks(presets.PRESETS["tiny_qwen3vl"], depth=5, deepstack=(1, 3))
    params = weights.to_params(shape, oracle.random_tensors(shape, 0))
    features = lambda p: model.merge(model.graph(shape), p).image_features(images)
    kept = jax.tree.leaves(jax.eval_shape(lambda params: jax.vjp(features, params)[1], params))
    stacks = [x.shape for x in kept if x.shape[:1] == (5,) and x.ndim > 3]  # but the weights
    (B, W, S), width = images.valid_BWS.shape, shape.vision.width
    assert (5, B, W, S, width) in stacks
    # The rest is attention's output, in its own order of axes, and a log-sum-exp for each head and query.
    size = 5 * B * W * S
    assert sum(map(np.prod, stacks)) == 2 * size * width + size * shape.vision.num_heads
