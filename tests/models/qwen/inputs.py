"""Inputs for model tests, made pixel by pixel: an independent reading of `types.Images`.

Nothing here uses the package's own image or prompt code; positions follow HF's `get_rope_index`.
"""

import dataclasses

import numpy as np

from vade_jax import types

# Mean and std of the channels, by pixels per side of a patch.
MEAN = {14: np.array([0.48145466, 0.4578275, 0.40821073], np.float32), 16: np.float32(0.5)}
STD = {14: np.array([0.26862954, 0.26130258, 0.27577711], np.float32), 16: np.float32(0.5)}


@dataclasses.dataclass
class Example:
    """A prompt as HF wants it: ids, and for every image its pixels."""

    ids: list[int]
    images: list[np.ndarray]  # uint8 [height, width, 3], sides multiples of 2 patches
    patch: int = 14


def example(rng, sizes, image_token: int, num_text: int, patch: int = 14) -> Example:
    """Returns random text with images of `sizes` (in cells: rows, columns) inside it."""
    ids = list(rng.integers(0, 300, num_text // 2))
    images = []
    for rows, cols in sizes:
        ids += [image_token] * (rows * cols) + list(rng.integers(0, 300, 2))
        size = (2 * patch * rows, 2 * patch * cols, 3)
        images.append(rng.integers(0, 256, size, dtype=np.uint8))
    return Example(ids + list(rng.integers(0, 300, num_text - num_text // 2)), images, patch)


def processor_pixels(image: np.ndarray, patch: int = 14) -> np.ndarray:
    """Returns HF's `pixel_values` [patches, 3 x 2 x patch x patch] of one resized image."""
    x = (image.astype(np.float64) * (1 / 255)).astype(np.float32)
    x = ((x - MEAN[patch]) / STD[patch]).transpose(2, 0, 1)
    rows, cols = x.shape[1] // (2 * patch), x.shape[2] // (2 * patch)
    x = x.reshape(3, rows, 2, patch, cols, 2, patch).transpose(1, 4, 2, 5, 0, 3, 6)
    return np.repeat(x[..., None, :, :], 2, -3).reshape(rows * cols * 4, 6 * patch * patch)


def positions(ids, images, image_token: int, patch: int = 14) -> np.ndarray:
    """Returns M-RoPE positions [P, 3], one token after the other."""
    side = 2 * patch
    grids = iter([(i.shape[0] // side, i.shape[1] // side) for i in images])
    result, current, k = [], 0, 0
    while k < len(ids):
        if ids[k] != image_token:
            result.append((current, current, current))
            current, k = current + 1, k + 1
            continue
        rows, cols = next(grids)
        for y in range(rows):
            for x in range(cols):
                result.append((current, current + y, current + x))
        current, k = current + max(rows, cols), k + rows * cols
    return np.array(result, np.int32)


def layout(images, num_images=None, num_windows=None, size: int = 14) -> types.Images:
    """Returns windows of 64 slots, filled patch by patch; a patch has `size` pixels per side."""
    windows = [-(-i.shape[0] // (8 * size)) * -(-i.shape[1] // (8 * size)) for i in images]
    B, W = num_images or max(1, len(images)), num_windows or max([1, *windows])
    patch = np.zeros((B, W, 64, 3 * size * size), np.uint8)
    row, col = np.zeros((B, W, 64), np.int32), np.zeros((B, W, 64), np.int32)
    valid = np.zeros((B, W, 64), bool)
    for b, image in enumerate(images):
        across = -(-image.shape[1] // (8 * size))
        for y in range(image.shape[0] // size):
            for x in range(image.shape[1] // size):
                w, s = slot(y, x, across)
                tile = image[size * y : size * y + size, size * x : size * x + size]
                patch[b, w, s] = tile.transpose(2, 0, 1).reshape(-1)
                row[b, w, s], col[b, w, s], valid[b, w, s] = y, x, True
    return types.Images(patch_BWSE=patch, row_BWS=row, col_BWS=col, valid_BWS=valid)


def slot(y: int, x: int, across: int) -> tuple[int, int]:
    """Returns the window and the slot of the patch in row y, column x."""
    cell = (y // 2 % 4) * 4 + x // 2 % 4
    return (y // 8) * across + x // 8, 4 * cell + (y % 2) * 2 + x % 2


def cells(image: np.ndarray, patch: int = 14) -> list[tuple[int, int]]:
    """Returns (window, cell) of every merged cell, row-major in the image."""
    across = -(-image.shape[1] // (8 * patch))
    rows, cols = image.shape[0] // (2 * patch), image.shape[1] // (2 * patch)
    places = [slot(2 * y, 2 * x, across) for y in range(rows) for x in range(cols)]
    return [(w, s // 4) for w, s in places]


def batch(examples, image_token: int, *, length=None, num_images=None, num_windows=None):
    """Returns right-padded `types.Prompts`."""
    patch = examples[0].patch
    images = layout([i for e in examples for i in e.images], num_images, num_windows, patch)
    M, P = len(examples), length or max(len(e.ids) for e in examples)
    W = images.valid_BWS.shape[1]
    token, cell = np.zeros((M, P), np.int32), np.full((M, P), -1, np.int32)
    position = np.zeros((M, P, 3), np.int32)
    following = np.zeros(M, np.int32)
    b = 0
    for m, e in enumerate(examples):
        n = len(e.ids)
        token[m, :n] = e.ids
        position[m, :n] = positions(e.ids, e.images, image_token, patch)
        following[m] = position[m, :n].max() + 1
        index = []
        for image in e.images:
            index += [(b * W + w) * 16 + c for w, c in cells(image, patch)]
            b += 1
        cell[m, np.flatnonzero(token[m] == image_token)] = index
    return types.Prompts(
        token_MP=token,
        length_M=np.array([len(e.ids) for e in examples], np.int32),
        position_MPX=position,
        next_position_M=following,
        cell_MP=cell,
        images=images,
    )


def join(prompts: types.Prompts, token_NT, group_N) -> types.Prompts:
    """Returns one plain row per answer: its prompt's tokens, then its own."""
    rows = [np.asarray(x)[group_N] for x in (prompts.token_MP, prompts.cell_MP)]
    (N, P), T = rows[0].shape, token_NT.shape[1]
    token, cell = (np.pad(x, ((0, 0), (0, T))) for x in rows)
    position = np.pad(np.asarray(prompts.position_MPX)[group_N], ((0, 0), (0, T), (0, 0)))
    length = np.asarray(prompts.length_M)[group_N]
    cell[:, P:] = -1
    for n in range(N):
        place = slice(length[n], length[n] + T)
        token[n, place], cell[n, place] = token_NT[n], -1
        start = int(prompts.next_position_M[group_N[n]])
        position[n, place] = start + np.arange(T)[:, None]
    return types.Prompts(
        token_MP=token,
        length_M=length + T,
        position_MPX=position,
        next_position_M=prompts.next_position_M[group_N] + T,
        cell_MP=cell,
        images=prompts.images,
    )
