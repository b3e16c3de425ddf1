"""Builds a tiny tokenizer in the form of published ones, for tiny checkpoints and for tests."""

import functools
import json
import pathlib
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

import tokenizers

from vade_jax.data import images, tokens

SPARE_ROWS = 10  # unused rows of the embedding after the last token; published files have some too
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)  # the published pattern, in which every digit is a separate token
_FILES = pathlib.Path(__file__).with_name("templates")


def build(
    directory: str | pathlib.Path,
    texts: Sequence[str],
    vocab_size: int,
    *,
    min_pixels: int = 56 * 56,
    max_pixels: int = 112 * 112,
    shows_images: bool = True,
    patch: int = images.PATCH,
) -> tokens.Tokenizer:
    """Writes a tiny tokenizer in the published form and returns it.

    It is a byte-level BPE over NFC text, with the special tokens after the vocabulary in the published
    order. A chat template, preprocessor_config.json and generation_config.json are written too. The
    template has no default system turn, because short prompts matter on a CPU.

    Args:
        directory: where to write; created if it is missing.
        texts: questions and answers to learn merges from.
        vocab_size: rows of the embedding; at least 10 of them stay unused, as in published files.
        min_pixels: smallest area of a resized image, written for engines that resize.
        max_pixels: largest area of a resized image.
        shows_images: whether the template has a place for images. If False, a turn's content is a text,
            as in published text models.
        patch: pixels per side of a patch of the model.

    Raises:
        ValueError: `vocab_size` is too small.
    """
    num_merged = vocab_size - len(tokens.SPECIAL) - len(tokens.PLAIN) - SPARE_ROWS
    if num_merged < 256:
        raise ValueError(
            f"vocab_size={vocab_size} has no room for 256 bytes, {len(tokens.SPECIAL + tokens.PLAIN)} "
            f"special tokens and {SPARE_ROWS} spare rows; use at least {vocab_size + 256 - num_merged}"
        )
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer = _train(texts, num_merged)
    tokenizer.save(str(directory / "tokenizer.json"))
    template = _FILES / ("vision.jinja" if shows_images else "text.jinja")
    shutil.copyfile(template, directory / "chat_template.jinja")
    shutil.copyfile(_FILES / "tokenizer_config.json", directory / "tokenizer_config.json")
    ids: dict[str, Any] = {name: tokenizer.token_to_id(name) for name in tokens.SPECIAL}
    configs = _configs(ids, patch)
    if not shows_images:
        del configs[tokens.PREPROCESSOR]
    for name, content in configs.items():
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (directory / name).write_text(text + "\n", encoding="utf-8")
    tokens.write_pixels(directory, min_pixels, max_pixels)
    return tokens.Tokenizer.load(directory)


def _train(texts: Sequence[str], num_merged: int) -> tokenizers.Tokenizer:
    """Returns a byte-level BPE with `num_merged` entries, followed by the added tokens."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.normalizer = tokenizers.normalizers.NFC()
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(_SPLIT), "isolated")
    to_bytes = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=num_merged,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    # Every prompt contains the names of the roles, so these count as often as the texts.
    roles = ["user\n", "assistant\n", "system\n"] * len(texts)
    tokenizer.train_from_iterator([*texts, *roles], trainer)
    added = functools.partial(tokenizers.AddedToken, normalized=False)
    tokenizer.add_special_tokens([added(name, special=True) for name in tokens.SPECIAL])
    tokenizer.add_tokens([added(name, special=False) for name in tokens.PLAIN])
    return tokenizer


def _configs(ids: Mapping[str, int], patch: int) -> dict[str, dict[str, Any]]:
    """Returns the content of the JSON files next to tokenizer.json, by file name."""
    mean, std = map(list, images.PIXELS[patch])
    return {
        tokens.PREPROCESSOR: {
            "image_processor_type": "Qwen2VLImageProcessor",
            "processor_class": "Qwen2_5_VLProcessor" if patch == 14 else "Qwen3VLProcessor",
            "patch_size": patch,
            "temporal_patch_size": 2,
            "merge_size": 2,
            "image_mean": mean,
            "image_std": std,
        },
        "generation_config.json": {
            "bos_token_id": ids["<|endoftext|>"],
            "pad_token_id": ids["<|endoftext|>"],
            "eos_token_id": [ids["<|im_end|>"], ids["<|endoftext|>"]],
            "do_sample": True,
            "temperature": 1.0,
            "top_p": 1.0,
            "top_k": 0,
            "repetition_penalty": 1.0,
        },
    }
