"""Checks the data of a run: held-out questions, lengths of answers, sizes of pictures, rewards."""

import numpy as np

from vade_jax import settings
from vade_jax.rewards import trial
from vade_jax.run import build
from vade_jax.run.checks import selector
from vade_jax.run.datasets import Datasets
from vade_jax.trainer import processes

NUM_TRIED = 4  # rows that a user's reward functions are tried on


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
    if line := data.build_prompt.on_pictures(data.train.sizes):
        print(line)


def _check_lengths(run: settings.Run, data: Datasets) -> None:
    """Prints how many rows' own answers are cut; raises ValueError if no right answer can be given at all."""
    form, target = run.reward.format, data.build_prompt.target
    # A bare box is right as well, even without the end of the turn.
    not_needed = len(target("", form)) - len(target("", "boxed")) + 1
    for split, limits in {"train": run.sampling, "validation": run.eval}.items():
        length_I, most = getattr(data, split).lengths, limits.max_tokens
        num_cut, longest = (length_I > most).sum(), length_I.max()
        limit = f"{limits.path}max_tokens={most}"
        by_rules = split == "train" and not run.reward.functions  # these may pay for anything
        if by_rules and length_I.min() - not_needed > most:
            raise ValueError(
                f"{limit} cuts the own answers of all {num_cut:,} rows of data.train, so nothing can be earned: in "
                f"the asked form they take up to {longest} tokens, --config.sampling.max_tokens={longest}"
            )
        if num_cut:
            print(
                f"{split}: {num_cut:,} of {len(length_I):,} rows: their own answer takes up to {longest} tokens in "
                f"the asked form, {limit} cuts it"
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
