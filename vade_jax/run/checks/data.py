"""Checks the data of a run: held-out questions, lengths of answers, sizes of pictures, rewards."""

import math
from collections.abc import Mapping

import numpy as np

from vade_jax import settings
from vade_jax.data import images, procedural, tokens
from vade_jax.rewards import trial
from vade_jax.run import build
from vade_jax.run.checks import selector
from vade_jax.run.datasets import Datasets
from vade_jax.trainer import processes

NUM_TRIED = 4  # rows that a user's reward functions are tried on
_MUCH = 2  # the factor of an area from which on a picture is said to be of another size


def check_data(run: settings.Run, data: Datasets) -> None:
    """Checks that there are enough rows, rewards that can be earned, and questions for validation alone.

    It prints what a user might not expect of lengths and sizes.

    Raises:
        ValueError: names the sizes or the files, and the fix.
    """
    selector.check_data_size(run, len(data.train))
    selector.warn_without_choice(run, len(data.train))
    _check_held_out(run.data, data)
    _check_lengths(run, data)
    _check_taught(run, data)
    if line := _on_pictures(run.data, data):
        print(line)


def _check_lengths(run: settings.Run, data: Datasets) -> None:
    """Prints how many rows' own answers are cut; raises ValueError if no answer that is paid can be given."""
    for split, rows, limits in (
        ("train", data.train, run.sampling),
        ("validation", data.validation, run.eval),
    ):
        is_cut = rows.lengths > limits.max_tokens
        if not is_cut.any():
            continue
        limit, longest = f"{limits.path}max_tokens={limits.max_tokens}", rows.lengths.max()
        # A box without the end of the turn is still read.
        if (
            split == "train"
            and not run.reward.functions
            and rows.lengths.min() - 1 > limits.max_tokens
        ):
            raise ValueError(
                f"{limit} cuts the own answers of all {len(rows):,} rows of data.train, so nothing can be earned: "
                f"in the asked form they take up to {longest} tokens, --config.sampling.max_tokens={longest}"
            )
        print(
            f"{split}: {is_cut.sum():,} of {len(rows):,} rows: their own answer takes up to {longest} tokens in "
            f"the asked form, {limit} cuts it"
        )


def _check_taught(run: settings.Run, data: Datasets) -> None:
    """Prints which rows the warm start leaves out; raises ValueError if these are all."""
    if not run.warm_start.num_steps:
        return
    if run.warm_start.data == "procedural":
        if run.data.train != "procedural":
            print(
                "warm start: it teaches built-in questions; --config.warm_start.data=train teaches the rows of "
                "data.train"
            )
        return
    taught, limit = data.train.teachable(run.sampling.max_tokens), run.sampling.max_tokens
    if not len(taught):
        raise ValueError(
            f"warm_start.data='train': no row of data.train={run.data.train!r} has an answer of its own that fits "
            f"in sampling.max_tokens={limit}"
        )
    if len(taught) < len(data.train):
        print(
            f"warm start: {len(taught):,} of {len(data.train):,} rows are taught; the others have no answer, or one "
            f"that sampling.max_tokens={limit} cuts"
        )


def _on_pictures(data: settings.Data, found: Datasets) -> str:
    """Returns a line if the policy saw pictures such as the median one in another size, else ""."""
    tokenizer, size_I4 = found.build_prompt.tokenizer, found.train.sizes
    size_I4 = size_I4[size_I4[:, 0] > 0]  # rows with a picture
    if tokenizer.pixels is None or not len(size_I4):
        return ""
    by_area = np.argsort(size_I4[:, 0] * size_I4[:, 1], kind="stable")
    height, width, rows, cols = size_I4[by_area[len(by_area) // 2]].tolist()
    low, high = tokenizer.pixels
    own = images.smart_resize(height, width, patch=tokenizer.patch, min_pixels=low, max_pixels=high)
    area, shown = math.prod(own), rows * cols
    if shown < _MUCH * area and area < _MUCH * shown:
        return ""
    is_small, is_larger_in_file = shown < area, height * width > area
    limits = {
        "min_pixels": not is_larger_in_file if is_small else data.min_pixels > area,
        "max_pixels": data.max_pixels < area if is_small else is_larger_in_file,
    }
    fix = " ".join(f"--config.data.{name}={area}" for name, is_off in limits.items() if is_off)
    return (
        f"pictures: the median, {width} x {height}, becomes {cols} x {rows}; the policy was taught at {own[1]} x "
        f"{own[0]}: {fix}"
    )


def _check_held_out(data: settings.Data, found: Datasets) -> None:
    """Prints how many validation questions are also trained on; raises ValueError if all are."""
    if data.train == data.validation == "procedural":
        return  # drawn separately: the only pictures in both are empty ones
    if data.validation == "procedural" and processes.is_leader():
        print(
            f"WARNING: the validation is of the built-in questions, not of {data.train}: set data.validation to "
            "a file of yours, or hold rows out, --config.data.validation= --config.data.validation_share=0.1"
        )
    held_out = found.validation
    num_trained = int(np.isin(held_out.asked, found.train.asked).sum())
    if num_trained == len(held_out):
        raise ValueError(
            f"data.validation={data.validation!r}: all of its {num_trained} questions are in "
            f"data.train={data.train!r}, too: validate on questions that are not trained on"
        )
    if num_trained and processes.is_leader():
        print(
            f"validation: {num_trained} of {len(held_out)} questions are in the training data, too"
        )


def check_reward(run: settings.Run, data: Datasets) -> None:
    """Calls the user's reward functions on rows from the whole data and prints what they return.

    Raises:
        ValueError: a function fails; names it, the row and the answer.
    """
    if run.reward.functions:
        step = max(1, len(data.train) // NUM_TRIED)
        items = [data.train[i] for i in range(0, len(data.train), step)][:NUM_TRIED]
        tokenizer = data.build_prompt.tokenizer
        opening = build.opening(run.reward.format, run.data.template, tokenizer)
        judge = build.make_judge(run.reward, opening)
        print(trial.check(judge, items, run.reward.format, tokenizer.encode, opening))


def check_answers_fit(
    mixture: Mapping[str, float], seed: int, max_tokens: int, tokenizer: tokens.Tokenizer
) -> None:
    """Raises ValueError if the built-in answers are longer than the longest sampled answer."""
    kinds = procedural.expand_mixture(mixture)
    texts = {
        procedural.target_text(item)
        for kind, share in kinds.items()
        if share  # however few the items: the rare kinds come in the middle
        for item in procedural.Procedural(seed, 200, "warmup", {kind: 1.0})
    }
    longest = 1 + max(len(tokenizer.encode(text)) for text in texts)
    if longest > max_tokens:
        raise ValueError(
            f"sampling.max_tokens={max_tokens}: the warm start's answers have "
            f"up to {longest} tokens; set it to at least that"
        )
