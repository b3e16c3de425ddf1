"""Writes tiny checkpoints: complete model directories of a few megabytes, including a tokenizer.

The weights are random, except those of `tiny_reader`, which are part of the package. These are the 1.6 M
weights of "tiny" in bfloat16 after 1,000 supervised steps on the built-in questions, made by
`python -m experiments.make_tiny --taught`. This policy can read the pictures before RL begins.
"""

import dataclasses
import os
import pathlib
import shutil

import jax
import jax.numpy as jnp

from vade_jax.data import images, procedural
from vade_jax.models.qwen import files, model, presets, tiny_tokenizer

CELLS = 4  # cells per side of every image
READER = "tiny_reader"
READER_FILES = pathlib.Path(__file__).with_name(READER)


def write(directory: str | os.PathLike, seed: int, preset: str = "tiny") -> None:
    """Writes config, weights, tokenizer and chat template in the form of published checkpoints.

    Args:
        directory: where to write.
        seed: decides the weights, and the warm-up questions and answers that the tokenizer learns its
            merges from.
        preset: a key of `presets.PRESETS`; the tokenizer's ids replace its token ids. For "tiny_reader" the
            files of the package are copied, whatever the seed.
    """
    if preset == READER:
        files.check(READER_FILES)
        shape, params = files.load(READER_FILES)
        files.copy_tokenizer(READER_FILES, directory)
        files.save(directory, shape, params, jnp.bfloat16)
        return
    shape = presets.PRESETS[preset]
    texts = [
        text
        for item in procedural.Procedural(seed, 2000, "warmup")
        for text in (item.question, procedural.target_text(item))
    ]
    patch = shape.vision.patch_size if shape.vision else images.PATCH
    pixels = (CELLS * images.cell_side(patch)) ** 2
    directory = pathlib.Path(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    # A fixed name, so that the next start replaces the leftovers of a killed process.
    building = directory.with_name(f".{directory.name}.building")
    shutil.rmtree(building, ignore_errors=True)
    try:
        tokenizer = tiny_tokenizer.build(
            building,
            texts,
            shape.text.vocab_size,
            min_pixels=pixels,
            max_pixels=pixels,
            shows_images=shape.vision is not None,
            patch=patch,
        )
        ids = {"bos_token_id": tokenizer.pad, "eos_token_id": tokenizer.im_end}
        if shape.vision:
            ids |= {
                "image_token_id": tokenizer.image_pad,
                "video_token_id": tokenizer.video_pad,
                "vision_start_token_id": tokenizer.vision_start,
                "vision_end_token_id": tokenizer.vision_end,
            }
        shape = dataclasses.replace(shape, **ids)
        params = model.init(shape, jax.random.key(seed))
        files.copy_tokenizer(building, directory)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    files.save(directory, shape, params)  # last, because it completes the directory
