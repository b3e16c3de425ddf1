"""Pixels, and what window and full attention can see."""

import jax
import numpy as np

from tests.models.qwen import inputs, oracle
from vade_jax.models.qwen import model, presets, vision, weights

TINY = presets.PRESETS["tiny"]


def test_every_level_of_every_channel_is_bit_equal_to_the_processor():
    patch = np.repeat(np.arange(256, dtype=np.uint8)[:, None], 588, 1)
    image = np.repeat(np.arange(256, dtype=np.uint8), 3 * 49).reshape(16, -1, 3)
    expected = (image.astype(np.float64) * (1 / 255)).astype(np.float32)
    expected = ((expected - inputs.MEAN) / inputs.STD).reshape(256, 49, 3)
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
        features = jax.jit(qwen.image_features)
        change_BW = np.abs(features(after) - features(before)).max((-1, -2)) > 0
        np.testing.assert_array_equal(change_BW, moved)


def test_a_block_keeps_its_input_and_what_attention_returned():
    """Of both branches, windows and whole images, nothing else is kept for the backward pass."""
    images = inputs.layout([np.zeros((112, 224, 3), np.uint8)] * 2)
    shape = oracle.blocks(TINY, depth=3, full_blocks=(1,))
    params = weights.to_params(shape, oracle.random_tensors(shape, 0))
    features = lambda params: model.merge(model.graph(shape), params).image_features(images)
    kept = jax.tree.leaves(jax.eval_shape(lambda params: jax.vjp(features, params)[1], params))
    stacks = [x.shape for x in kept if x.shape[:1] == (3,) and x.ndim > 3]  # but the weights
    rest = images.valid_BWS.shape
    heads = (shape.vision.num_heads, shape.vision.head_width)
    assert sorted(stacks) == sorted([(3, *rest, shape.vision.width), (3, *rest, *heads)])
