"""Writes a tiny random Qwen2.5-VL checkpoint with a tokenizer of its own.

python -m experiments.make_tiny --directory=runs/tiny_model
"""

import dataclasses
import os
import pathlib
import shutil

import jax
from absl import app, flags

from vade_jax.data import procedural, tokens
from vade_jax.models.qwen25vl import config as configs
from vade_jax.models.qwen25vl import files, model

PIXELS = 112 * 112


def make(directory: str | os.PathLike, seed: int, preset: str = "tiny") -> None:
    """Writes config, weights, tokenizer and chat template, as published checkpoints have them.

    The tokenizer learns from the warm-up split's questions and answers.
    """
    shape = configs.PRESETS[preset]
    source = procedural.Procedural(seed, 2000, "warmup")
    texts = [
        text
        for item in source
        for text in (item.question, procedural.target_text(item))
    ]
    building = pathlib.Path(f"{os.fspath(directory)}.tmp")
    shutil.rmtree(building, ignore_errors=True)
    tokenizer = tokens.build(
        building, texts, shape.text.vocab_size, min_pixels=PIXELS, max_pixels=PIXELS
    )
    shape = dataclasses.replace(
        shape,
        image_token_id=tokenizer.image_pad,
        video_token_id=tokenizer.video_pad,
        vision_start_token_id=tokenizer.vision_start,
        vision_end_token_id=tokenizer.vision_end,
        bos_token_id=tokenizer.pad,
        eos_token_id=tokenizer.im_end,
    )
    params = model.init(shape, jax.random.key(seed))
    add_files(building, directory)
    files.save(directory, shape, params)
    shutil.rmtree(building)


def add_files(source: str | os.PathLike, directory: str | os.PathLike) -> None:
    """Copies what a checkpoint has beside its weights: tokenizer, template, processor.

    Before `files.save`, which then makes the directory complete at once.
    """
    pathlib.Path(directory).mkdir(parents=True, exist_ok=True)
    for path in pathlib.Path(source).iterdir():
        if path.suffix in (".json", ".jinja", ".txt") and not _is_weights(path.name):
            shutil.copy(path, pathlib.Path(directory) / path.name)


def _is_weights(name):
    return name == "config.json" or name.startswith("model")


if __name__ == "__main__":
    DIRECTORY = flags.DEFINE_string("directory", None, "Where it goes.", required=True)
    SEED = flags.DEFINE_integer("seed", 0, "Of the random weights.")
    app.run(lambda _: make(DIRECTORY.value, SEED.value))
