"""Images against the published processor: sizes, pixels, patches, windows."""

import io

import numpy as np
import pytest
from PIL import Image

from tests.data import files
from vade_jax.data import images

LIMITS = {"patch": 14, "min_pixels": 56 * 56, "max_pixels": 100 * 28 * 28}
SIZES = [
    *((112, 112), (42, 70), (2, 2), (2, 398), (3, 150), (28, 28), (27, 29)),
    *((200, 333), (500, 500), (640, 480), (17, 900), (99, 101), (392, 196)),
]


def _noise(height: int, width: int) -> Image.Image:
    rng = np.random.default_rng(height * 1000 + width)
    return Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))


def _normalized(patch_NE: np.ndarray) -> np.ndarray:
    """What the model does on the device, in the processor's precision."""
    mean = np.float32([0.48145466, 0.4578275, 0.40821073])[:, None]
    std = np.float32([0.26862954, 0.26130258, 0.27577711])[:, None]
    x = (patch_NE.astype(np.float64) * (1 / 255)).astype(np.float32)
    x = (x.reshape(-1, 3, 196) - mean) / std
    return np.repeat(x[:, :, None], 2, 2).reshape(len(x), -1)


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_patches_are_bit_equal_to_the_published_processor(height, width):
    module = pytest.importorskip("transformers.models.qwen2_vl.image_processing_pil_qwen2_vl")
    processor = module.Qwen2VLImageProcessorPil(**LIMITS)
    theirs = processor(_noise(height, width), return_tensors="np")
    ours = images.load(_noise(height, width), **LIMITS)
    rows, cols = images.grid(ours, 14)
    assert theirs["image_grid_thw"].tolist() == [[1, 2 * rows, 2 * cols]]
    np.testing.assert_array_equal(_normalized(files.patches(ours, 14)), theirs["pixel_values"])


@pytest.mark.parametrize(("height", "width"), [*SIZES, (5, 800), (2000, 11)])
def test_a_second_resize_changes_nothing(height, width):
    once = images.load(_noise(height, width), **LIMITS)
    assert images.smart_resize(*once.shape[:2], **LIMITS) == once.shape[:2]
    np.testing.assert_array_equal(images.load(Image.fromarray(once), **LIMITS), once)


@pytest.mark.parametrize("mode", ["CMYK", "P", "L", "LA", "RGBA", "1", "YCbCr", "HSV"])
def test_every_mode_becomes_what_the_published_processor_makes_of_it(mode):
    transformers = pytest.importorskip("transformers")
    if mode in ("LA", "RGBA") and transformers.__version__ < "5.20":
        pytest.skip("before 5.20 it dropped what is transparent instead of laying it on white")
    image = _noise(60, 90).convert(mode)
    if mode in ("LA", "RGBA"):
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    rgb = Image.fromarray(np.asarray(transformers.image_transforms.convert_to_rgb(image)))
    np.testing.assert_array_equal(images.load(image, **LIMITS), images.load(rgb, **LIMITS))


def test_palette_transparency_is_white():
    palette = Image.new("P", (56, 56), 0)
    palette.putpalette([255, 0, 0])
    palette.info["transparency"] = 0
    assert (images.load(palette, **LIMITS) == 255).all()


def test_exif_rotation_is_applied():
    picture = _noise(56, 112)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 270 degrees
    file = io.BytesIO()
    picture.save(file, "PNG", exif=exif)
    turned = images.load(Image.open(file), **LIMITS)
    np.testing.assert_array_equal(turned, np.rot90(np.asarray(picture), -1))


@pytest.mark.parametrize("size", [(112, 112), (28, 56), (140, 252), (224, 336)])
def test_windows_hold_the_patches_in_the_published_order(size):
    torch = pytest.importorskip("torch")
    vision = pytest.importorskip("transformers.vision_utils")
    image = np.asarray(_noise(*size))
    rows, cols = images.grid(image, 14)
    layout = images.layout([image], 14, 1, images.count_windows(image, 14))
    valid_WS = layout.valid_BWS[0]
    grid = torch.tensor([[1, 2 * rows, 2 * cols]])
    order, ends = vision.get_vision_window_index(grid, 2, 112, 14)
    patch_NE = files.patches(image, 14).reshape(-1, 4, 588)
    expected = patch_NE[order.numpy()].reshape(-1, 588)
    np.testing.assert_array_equal(layout.patch_BWSE[0][valid_WS], expected)
    np.testing.assert_array_equal(valid_WS.sum(1), np.diff(ends.numpy()))
    position = vision.get_vision_position_ids(grid, 2).numpy().reshape(-1, 4, 2)
    coordinates = np.stack([layout.row_BWS[0], layout.col_BWS[0]], -1)[valid_WS]
    np.testing.assert_array_equal(coordinates, position[order].reshape(-1, 2))
    cell_C = layout.patch_BWSE.reshape(-1, 4, 588)[images.cells(image, 14)]
    np.testing.assert_array_equal(cell_C, patch_NE)


def test_layout_pads_with_invalid_zeros_and_refuses_what_does_not_fit():
    image = np.full((112, 140, 3), 9, np.uint8)
    layout = images.layout([image], 14, num_images=2, num_windows=3)
    assert layout.patch_BWSE.shape == (2, 3, 64, 588)
    assert layout.valid_BWS.sum() == 8 * 10
    for x in (layout.patch_BWSE, layout.row_BWS, layout.col_BWS):
        assert not x[~layout.valid_BWS].any()
    assert images.layout([], 14, 1, 1).valid_BWS.sum() == 0
    with pytest.raises(ValueError):
        images.layout([image], 14, num_images=1, num_windows=1)
