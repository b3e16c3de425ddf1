"""A tiny random checkpoint with a tokenizer of its own: a whole model directory of a few megabytes."""

import dataclasses
import os
import pathlib
import shutil
import tempfile

import jax

from vade_jax.data import procedural, tokens
from vade_jax.models.qwen import config, files, model

PIXELS = 112 * 112  # of every image


def write(directory: str | os.PathLike, seed: int, preset: str = "tiny") -> None:
    """Writes config, weights, tokenizer and chat template, as published checkpoints have them.

    Args:
        directory: where it goes.
        seed: decides the weights, and the warm-up questions and answers that the tokenizer learns its
            merges from.
        preset: a key of `config.PRESETS`, whose token ids are replaced by the tokenizer's.
    """
    shape = config.PRESETS[preset]
    texts = [
        text
        for item in procedural.Procedural(seed, 2000, "warmup")
        for text in (item.question, procedural.target_text(item))
    ]
    directory = pathlib.Path(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    building = tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent)
    tokenizer = tokens.build(
        building,
        texts,
        shape.text.vocab_size,
        min_pixels=PIXELS,
        max_pixels=PIXELS,
        shows_images=shape.vision is not None,
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
    shutil.rmtree(building)
    files.save(directory, shape, params)  # the last thing: it completes the directory
