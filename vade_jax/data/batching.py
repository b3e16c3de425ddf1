"""Prompts of one batch as arrays of a few fixed sizes, with all their images in one block.

A prompt of a vision-language model has two ragged parts: its tokens, and its images of any size. XLA
compiles one program for every combination of array sizes, and a program of a large model takes minutes.
So sizes are rounded up to a few buckets (`arrays.bucket`: two an octave, at most half is padding), and
every micro-batch of a step is collated with the sizes of the largest.

Images are cut to attention windows of 4 x 4 merged cells (`images.layout`), because the vision tower
attends within such windows in most of its layers: with windows as an axis of the array, window attention
is a reshape instead of a mask over all pairs of patches. The price is that the features of an image come
out in the order of windows, while the language model wants them row by row; `cell_MP` says, for every
token, which merged cell it shows.
"""

from collections.abc import Sequence
from typing import TypeVar

import jax
import numpy as np

from vade_jax import arrays, types
from vade_jax.data import images

T = TypeVar("T", types.Prompts, types.Batch)


def shapes(*batches: Sequence[types.Prompt], multiple: int = 16) -> dict[str, int]:
    """Returns bucketed sizes that hold each of `batches`: keyword arguments of `collate`.

    Micro-batches collated with the sizes of all of them share one compiled step.

    Args:
        *batches: prompts, at least one in all.
        multiple: of prompt tokens; the larger, the fewer sizes a run meets.
    """
    prompts = [prompt for batch in batches for prompt in batch]
    if not prompts:
        raise ValueError("a batch needs at least one prompt")
    windows = [images.count_windows(image) for p in prompts for image in p.images]
    num_images = max(sum(len(p.images) for p in batch) for batch in batches)
    # Without any image there is still one, padded: batches with and without images share a program.
    return {
        "prompt_length": arrays.bucket(max(p.length for p in prompts), multiple),
        "num_images": arrays.bucket(max(1, num_images), 1),
        "num_windows": arrays.bucket(max([1, *windows]), 1),
    }


def collate(
    prompts: Sequence[types.Prompt],
    *,
    prompt_length: int | None = None,
    num_images: int | None = None,
    num_windows: int | None = None,
    multiple: int = 16,
) -> types.Prompts:
    """Returns the prompts right-padded, with all their images in one block (numpy leaves).

    Args:
        prompts: at least one.
        prompt_length: P; this and the next two are those of `shapes` by default.
        num_images: B; without images 1, a padded image whose slots are all invalid.
        num_windows: W.
        multiple: of P, when it is not given.

    Raises:
        ValueError: the prompts do not fit the sizes.
    """
    sizes = shapes(prompts, multiple=multiple)
    given = (prompt_length, num_images, num_windows)
    sizes |= {k: v for k, v in zip(sizes, given, strict=True) if v is not None}
    if (longest := max(p.length for p in prompts)) > sizes["prompt_length"]:
        raise ValueError(
            f"a prompt of {longest} tokens does not fit in prompt_length={sizes['prompt_length']}"
        )
    # Right padding: attention masks by length alone, and an answer's queries can be laid directly
    # after their prompt. Pads have token 0 and position 0, which nothing looks at.
    token_MP = arrays.stack([p.token_P for p in prompts], sizes["prompt_length"])
    position_MPX = arrays.stack([p.position_PX for p in prompts], token_MP.shape[1])
    pictures = [image for prompt in prompts for image in prompt.images]
    return types.Prompts(
        token_MP=token_MP,
        length_M=np.asarray([p.length for p in prompts], np.int32),
        position_MPX=position_MPX,
        # Not the length: an image of r x c cells takes r * c tokens but max(r, c) positions.
        next_position_M=position_MPX.max((1, 2)) + np.int32(1),
        cell_MP=_cells(prompts, token_MP.shape, sizes["num_windows"]),
        images=images.layout(pictures, sizes["num_images"], sizes["num_windows"]),
    )


def _cells(prompts: Sequence[types.Prompt], shape: tuple[int, int], num_windows: int) -> np.ndarray:
    """Returns, for every token, its merged cell in the flat (B, W, C); -1 for text and padding.

    Images follow one another in B as they do in the prompts, whoever's they are, so the cells of the
    next image start num_windows * 16 further on.
    """
    cell_MP = np.full(shape, -1, np.int32)
    first = 0  # cell of the next image
    for m, prompt in enumerate(prompts):
        cells = [images.cells(image) for image in prompt.images]
        starts = first + num_windows * images.CELLS * np.arange(len(cells))
        flat = [start + cell for start, cell in zip(starts, cells, strict=True)]
        # The tokens of an image are found by their positions alone, without the id of the image pad:
        # all of them share one time, and neighbours in a text never do. A single cell would have no
        # neighbour, which is why a prompt's images have at least two (`prompts.PromptBuilder`).
        same = np.diff(prompt.position_PX[:, 0]) == 0
        is_image = np.concatenate([same, [False]]) | np.concatenate([[False], same])
        if is_image.sum() != sum(map(len, cells)):
            raise ValueError(
                f"{prompt.uid}: {is_image.sum()} image tokens, "
                f"{sum(map(len, cells))} merged cells; build prompts with PromptBuilder"
            )
        cell_MP[m, : prompt.length][is_image] = np.concatenate([[], *flat])
        first += num_windows * images.CELLS * len(cells)
    return cell_MP


def stack_micro(batches: Sequence[T]) -> T:
    """Returns micro-batches of equal sizes with a leading axis, for a scan over them.

    Raises:
        ValueError: their sizes differ.
    """
    if len({tuple(np.shape(x) for x in jax.tree.leaves(b)) for b in batches}) != 1:
        raise ValueError("micro-batches differ in size; collate them with shapes(*all)")
    return jax.tree.map(lambda *leaves: np.stack(leaves), *batches)
