"""Turns PIL images into uint8 patches in windows, bit-equal to the published Qwen2-VL processor.

An image is resized once, here, to sides that are multiples of a cell: 28 pixels for Qwen2.5-VL, with patches
of 14, and 32 for Qwen3-VL, with patches of 16. All engines and the trainer see these pixels. Patches stay
uint8 until they are on the device; the published processor's floats, with each frame twice, are 8 times as
large. The model divides by 255, normalises, and accounts for the second frame there.
"""

import io
import math
import warnings
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from vade_jax import types

PATCH = 14  # pixels per side of a patch of Qwen2.5-VL, and for images made without a model
# Mean and standard deviation of each channel, by pixels per side of a patch.
PIXELS = {
    14: ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    16: ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
}
WINDOW = 4  # cells per side of an attention window
CELLS = WINDOW * WINDOW
SLOTS = 4 * CELLS  # patches in a window
MAX_ASPECT = 200
# Only formats that Pillow decodes itself. An EPS file, for example, is a program that Pillow would run.
FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF")
# Most pixels of an image, because a small file may decode to very many. This number takes 0.8 GB to decode.
MAX_DECODED = 50_000_000


def cell_side(patch: int) -> int:
    """Returns the pixels per side of a merged cell, which is 2 x 2 patches and becomes one token."""
    return 2 * patch


def smart_resize(
    height: int, width: int, *, patch: int, min_pixels: int, max_pixels: int
) -> tuple[int, int]:
    """Returns the (height, width) in whole cells that the published processor chooses.

    Sides are rounded with Python's `round` (half to even); if the area is then outside the limits, the
    image is scaled down or up.

    Raises:
        ValueError: one side is more than 200 times the other, or 0.
    """
    if min(height, width) < 1 or max(height, width) > MAX_ASPECT * min(height, width):
        raise ValueError(
            f"an image of {width} x {height} pixels has an aspect ratio over "
            f"{MAX_ASPECT}; crop or pad it"
        )
    cell = cell_side(patch)
    rows, cols = round(height / cell), round(width / cell)
    if rows * cols * cell * cell > max_pixels:
        shrink = math.sqrt(height * width / max_pixels)
        rows = max(1, math.floor(height / shrink / cell))
        cols = max(1, math.floor(width / shrink / cell))
    elif rows * cols * cell * cell < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        rows = math.ceil(height * grow / cell)
        cols = math.ceil(width * grow / cell)
    return rows * cell, cols * cell


def _stable_size(height: int, width: int, **limits: int) -> tuple[int, int]:
    """Returns a size that `smart_resize` does not change, so that an engine may apply it again.

    vLLM runs the published processor on the pixels that it receives. For most images one call of
    `smart_resize` is enough. For extreme ones (a side of one cell, and limits within a factor of 2) a
    second call gives another size, so the call is repeated until the size stays.

    Raises:
        ValueError: the size still changes after 16 calls.
    """
    shape = f"{width} x {height}"
    for _ in range(16):
        size = smart_resize(height, width, **limits)
        if size == (height, width):
            return size
        height, width = size
    raise ValueError(
        f"an image of {shape} pixels cannot be resized to multiples of {cell_side(limits['patch'])} with"
        f" min_pixels={limits['min_pixels']} and max_pixels={limits['max_pixels']}: let max_pixels be"
        " at least 4 x min_pixels"
    )


def opened(file: bytes) -> Image.Image:
    """Opens the image in a file without decoding it.

    Raises:
        ValueError: the format is not in `FORMATS`, or the image has over 50 million pixels.
    """
    try:
        with warnings.catch_warnings(category=Image.DecompressionBombWarning, action="ignore"):
            image = Image.open(io.BytesIO(file), formats=FORMATS)
    except UnidentifiedImageError as error:  # its text contains a memory address
        raise ValueError("it is not in a known format") from error
    except Exception as error:  # Pillow raises SyntaxError, struct.error, OverflowError, ...
        raise ValueError(f"its header is damaged ({error})") from error
    if image.width * image.height > MAX_DECODED:
        raise ValueError(
            f"{image.width} x {image.height} are over {MAX_DECODED:,} pixels; shrink it"
        )
    return image


def is_picture(head: bytes) -> bool:
    """Returns whether a file with these first bytes claims to be a picture."""
    is_boxed = (head[:4] == b"RIFF" and head[8:12] == b"WEBP") or head[4:12] == b"ftypavif"
    return is_boxed or head.startswith(
        (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*", b"BM")
    )


def to_rgb(image: Image.Image) -> Image.Image:
    """Returns an upright RGB image; transparent parts become white.

    Raises:
        ValueError: values have more than 8 bits, so white is unknown. The published processor makes all above
            255 white.
    """
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"mode {image.mode} has no certain white: save it as an 8-bit PNG")
    if "A" in image.getbands() or image.info.get("transparency") is not None:
        image = image.convert("RGBA")
        paper = Image.new("RGBA", image.size, (255, 255, 255, 255))
        image = Image.alpha_composite(paper, image)
    return image.convert("RGB")


def load(image: Image.Image, *, patch: int, min_pixels: int, max_pixels: int) -> np.ndarray:
    """Returns the resized image as uint8 [height, width, 3]; both sides are whole cells of 2 x 2 patches.

    Raises:
        ValueError: the file is damaged, its values have more than 8 bits, or the aspect ratio is over 200.
    """
    limits = {"patch": patch, "min_pixels": min_pixels, "max_pixels": max_pixels}
    height, width = image.height, image.width
    # Bad shapes are known from the header and rejected before decoding, which may take seconds and gigabytes.
    smart_resize(height, width, **limits)
    try:
        image = to_rgb(image)
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ...
        raise ValueError(
            f"an image of {width} x {height} pixels cannot be decoded ({error}); replace the file"
        ) from error
    height, width = _stable_size(image.height, image.width, **limits)
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BICUBIC)
    return np.array(image)


def grid(image: np.ndarray, patch: int) -> tuple[int, int]:
    """Returns how many (rows, columns) of merged cells a resized image has."""
    height, width, _ = image.shape
    return height // cell_side(patch), width // cell_side(patch)


def count_windows(image: np.ndarray, patch: int) -> int:
    """Returns how many attention windows of 4 x 4 cells cover the image."""
    rows, cols = grid(image, patch)
    return -(-rows // WINDOW) * -(-cols // WINDOW)


def cells(image: np.ndarray, patch: int) -> np.ndarray:
    """Returns the index w * 16 + c in `layout` of each merged cell, in row-major order."""
    rows, cols = grid(image, patch)
    row, col = np.divmod(np.arange(rows * cols), cols)
    window = row // WINDOW * -(-cols // WINDOW) + col // WINDOW
    cell = row % WINDOW * WINDOW + col % WINDOW
    return (window * CELLS + cell).astype(np.int32)


def layout(
    images: Sequence[np.ndarray], patch: int, num_images: int, num_windows: int
) -> types.Images:
    """Returns resized images cut into windows of 64 slots, in arrays of fixed sizes.

    A window is 4 x 4 merged cells. Windows at the right and lower edges may extend beyond the image; their
    slots there are invalid, like all slots of padded windows and images.

    Args:
        images: each uint8 [height, width, 3]; without images, the result is padding only.
        patch: pixels per side of a patch.
        num_images: B, at least the number of images.
        num_windows: W, at least the number of windows of the largest image.

    Raises:
        IndexError, ValueError: the images do not fit the sizes.
    """
    shape = (num_images, num_windows, SLOTS)
    out = types.Images(
        patch_BWSE=np.zeros((*shape, 3 * patch * patch), np.uint8),
        row_BWS=np.zeros(shape, np.int32),
        col_BWS=np.zeros(shape, np.int32),
        valid_BWS=np.zeros(shape, bool),
    )
    for b, image in enumerate(images):
        _cut(image, patch, b, out)
    return out


def _cut(image: np.ndarray, patch: int, b: int, out: types.Images) -> None:
    """Cuts an image into windows, and writes them to the first windows of image b in arrays of zeros.

    It writes directly into the batch: a separate array and a copy would double the time.
    """
    rows, cols = (-(-cells // WINDOW) for cells in grid(image, patch))  # of windows
    side = WINDOW * cell_side(patch)
    canvas = np.zeros((rows * side, cols * side, 3), np.uint8)
    canvas[: image.shape[0], : image.shape[1]] = image
    # Each side is split into (window, cell, patch, pixel). The new order: windows row by row; in each the
    # cells row by row; in each the four patches; in each (channel, y, x).
    split = canvas.reshape(rows, WINDOW, 2, patch, cols, WINDOW, 2, patch, 3)
    windows = out.patch_BWSE[b, : rows * cols]
    windows = windows.reshape(rows, cols, WINDOW, WINDOW, 2, 2, 3, patch, patch)
    windows[...] = split.transpose(0, 4, 1, 5, 2, 6, 8, 3, 7)
    # The row and column of each patch in its image, in the same order.
    row = np.arange(rows * WINDOW * 2).reshape(rows, 1, WINDOW, 1, 2, 1)
    col = np.arange(cols * WINDOW * 2).reshape(1, cols, 1, WINDOW, 1, 2)
    slots = (rows, cols, WINDOW, WINDOW, 2, 2)
    row, col = (np.broadcast_to(x, slots).reshape(-1, SLOTS) for x in (row, col))
    height, width = (2 * cells for cells in grid(image, patch))  # in patches
    valid = (row < height) & (col < width)
    out.row_BWS[b, : len(row)], out.col_BWS[b, : len(row)] = row * valid, col * valid
    out.valid_BWS[b, : len(row)] = valid
