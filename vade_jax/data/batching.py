"""Collates prompts into arrays of a few fixed sizes, with all their images in one block.

A prompt of a vision-language model has two parts of varying size: its tokens and its images. XLA compiles
one program for every combination of array sizes, which takes minutes for a large model. So sizes are rounded
up to a few buckets (`arrays.bucket`: two per factor of 2, so less than half is padding), and all
micro-batches of a step get the sizes of the largest.

Images are cut into attention windows of 4 x 4 merged cells (`images.layout`), because most layers of the
vision tower attend only within these windows. With windows as an axis of the array, window attention is a
reshape instead of a mask over all pairs of patches. The price: the features of an image come out in the
order of windows, but the language model needs them row by row. `cell_MP` therefore gives the merged cell of
each token.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

import jax
import numpy as np

from vade_jax import arrays, types
from vade_jax.data import images

T = TypeVar("T", types.Prompts, types.Batch)


def shapes(*batches: Sequence[types.Prompt], multiple: int = 16, ways: int = 1) -> dict[str, int]:
    """Returns bucketed sizes that fit each of `batches`, as keyword arguments of `collate`.

    If all micro-batches are collated with these sizes, they share one compiled step.

    Args:
        *batches: batches of prompts, with at least one prompt in total.
        multiple: the prompt length is rounded up to one of a few multiples of this; a larger value gives
            fewer sizes.
        ways: the number of devices that share a batch; image slots are padded to a multiple of it.
    """
    prompts = [prompt for batch in batches for prompt in batch]
    windows = [images.count_windows(image, p.patch) for p in prompts for image in p.images]
    num_images = max(sum(len(p.images) for p in batch) for batch in batches)
    num_images = arrays.bucket(max(1, num_images), 1)
    # At least one image slot, padded if need be, so that batches with and without images share a program.
    return {
        "prompt_length": arrays.bucket(max(p.length for p in prompts), multiple),
        "num_images": num_images + -num_images % ways,
        "num_windows": arrays.bucket(max([1, *windows]), 1),
    }


def collate(prompts: Sequence[types.Prompt], **sizes: int) -> types.Prompts:
    """Returns the prompts right-padded, with all their images in one block, as NumPy arrays.

    Args:
        prompts: at least one.
        **sizes: those of `shapes`; the default of each fits these prompts. Slots without an image are
            invalid.

    Raises:
        ValueError: the prompts do not fit the sizes.
    """
    sizes = shapes(prompts) | sizes
    # With right padding, attention needs only lengths for its masks, and answers can directly follow their
    # prompt. Padding has token 0 and position 0, which are never used.
    token_MP = arrays.stack([p.token_P for p in prompts], sizes["prompt_length"])
    position_MPX = arrays.stack([p.position_PX for p in prompts], token_MP.shape[1])
    pictures = [image for prompt in prompts for image in prompt.images]
    return types.Prompts(
        token_MP=token_MP,
        length_M=np.asarray([p.length for p in prompts], np.int32),
        position_MPX=position_MPX,
        # Not the length: an image of r x c cells has r * c tokens, but advances positions by max(r, c).
        next_position_M=position_MPX.max((1, 2)) + np.int32(1),
        cell_MP=_cells(prompts, token_MP.shape, sizes["num_windows"]),
        images=images.layout(pictures, prompts[0].patch, sizes["num_images"], sizes["num_windows"]),
    )


def _cells(prompts: Sequence[types.Prompt], shape: tuple[int, int], num_windows: int) -> np.ndarray:
    """Returns the merged cell of every token, as an index into the flat (B, W, C); -1 for text and padding.

    Axis B has the images of all prompts in order, so the cells of each image start num_windows * 16 after
    those of the image before.
    """
    cell_MP = np.full(shape, -1, np.int32)
    first = 0  # first cell of the next image
    for m, prompt in enumerate(prompts):
        cells = [images.cells(image, prompt.patch) for image in prompt.images]
        starts = first + num_windows * images.CELLS * np.arange(len(cells))
        flat = [start + cell for start, cell in zip(starts, cells, strict=True)]
        # Image tokens are found by their positions, so the id of the image pad is not needed here: all
        # tokens of an image have the same time, and adjacent tokens of text never do. An image of a single
        # cell could not be found this way, so `prompts.PromptBuilder` makes at least two cells per image.
        same = np.diff(prompt.position_PX[:, 0]) == 0
        is_image = np.concatenate([same, [False]]) | np.concatenate([[False], same])
        cell_MP[m, : prompt.length][is_image] = np.concatenate([[], *flat])
        first += num_windows * images.CELLS * len(cells)
    return cell_MP


def stack_micro(batches: Iterable[T]) -> T:
    """Stacks micro-batches, collated with the sizes of all, along a new leading axis for a scan over them.

    Raises:
        ValueError: their sizes differ.
    """
    return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
