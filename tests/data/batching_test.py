"""Batches: padding, positions, and where each image token finds its cell."""

import jax
import numpy as np
import pytest
from PIL import Image

from tests.data import files
from vade_jax import types
from vade_jax.data import batching, prompts
from vade_jax.models.qwen import tiny_tokenizer


@pytest.fixture(scope="module")
def builder(tmp_path_factory):
    tokenizer = tiny_tokenizer.build(tmp_path_factory.mktemp("tiny"), ["what is it?"], 400)
    return prompts.PromptBuilder(
        tokenizer, instruction="", min_pixels=3136, max_pixels=10**6, max_length=500
    )


def _prompt(builder, *sizes, question="what is it?"):
    rng = np.random.default_rng(len(sizes))
    pictures = [Image.fromarray(rng.integers(0, 256, (h, w, 3), dtype=np.uint8)) for h, w in sizes]
    item = types.Item(uid="u", question=question, images=tuple(pictures), answer="1", kind="int")
    return builder(item)


@pytest.fixture(scope="module")
def batch(builder):
    sizes = [((112, 112),), (), ((140, 56), (84, 252))]
    return [_prompt(builder, *s) for s in sizes]


def test_every_image_token_finds_the_patches_of_its_cell(builder, batch):
    out = batching.collate(batch)
    cell_CE = out.images.patch_BWSE.reshape(-1, 4 * 588)
    for prompt, cell_P in zip(batch, out.cell_MP, strict=True):
        is_pad = prompt.token_P == builder.tokenizer.image_pad
        np.testing.assert_array_equal(cell_P[: prompt.length] >= 0, is_pad)
        assert (cell_P[prompt.length :] == -1).all()
        patches = [files.patches(image, 14) for image in prompt.images]
        expected = np.concatenate([np.empty((0, 588), np.uint8), *patches])
        found = cell_CE[cell_P[cell_P >= 0]].reshape(-1, 588)
        np.testing.assert_array_equal(found, expected)


def test_rows_are_right_padded_to_bucketed_sizes(batch):
    out = batching.collate(batch)
    sizes = batching.shapes(batch)
    assert out.token_MP.shape == (3, sizes["prompt_length"])
    assert sizes["prompt_length"] % 16 == 0
    assert out.images.valid_BWS.shape == (3, 3, 64)  # 84 x 252 is 3 x 9 cells
    for m, prompt in enumerate(batch):
        np.testing.assert_array_equal(out.token_MP[m, : prompt.length], prompt.token_P)
        assert not out.token_MP[m, prompt.length :].any()
        assert out.length_M[m] == prompt.length
        assert out.next_position_M[m] == prompt.position_PX.max() + 1
    assert {x.dtype for x in jax.tree.leaves(out)} == {
        np.dtype(d) for d in (np.int32, np.uint8, bool)
    }


def test_text_alone_gets_one_invalid_image(builder):
    out = batching.collate([_prompt(builder)])
    assert out.images.patch_BWSE.shape == (1, 1, 64, 588)
    assert not out.images.valid_BWS.any() and (out.cell_MP == -1).all()


def test_micro_batches_share_shapes_and_stack(batch):
    micros = [batch[:1], batch[1:]]
    sizes = batching.shapes(*micros)
    assert sizes["num_images"] == 2
    stacked = batching.stack_micro([batching.collate(m, **sizes) for m in micros[:1]])
    assert stacked.token_MP.shape == (1, 1, sizes["prompt_length"])
    with pytest.raises(ValueError, match="same shape"):
        batching.stack_micro([batching.collate(m, **sizes) for m in micros])
