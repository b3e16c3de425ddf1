"""The checks before a run's first step: one sentence per mistake, with the field, its value and the fix.

Each section of the settings checks what it can check alone (settings.py). Here are checks for mistakes
that would silently give wrong numbers, and for common ones that would fail only after minutes: names, files,
sizes that do not fit each other. `job.train` calls them in the order of this file, cheap ones first.
"""

import contextlib
import importlib.util
from collections.abc import Iterator

import jax
import numpy as np

from vade_jax import fields, samplers, settings
from vade_jax.data import procedural
from vade_jax.models.qwen import files, peft
from vade_jax.models.qwen.presets import PRESETS
from vade_jax.rewards import answers, functions, trial, verify
from vade_jax.run import build, gpus
from vade_jax.run.datasets import Datasets
from vade_jax.run.hooks import NO_HOOKS, Hooks
from vade_jax.trainer import mesh
from vade_jax.trainer.policy import abstract_policy, compute_dtype

NUM_TRIED = 4  # rows that a user's reward functions are tried on


class UserError(ValueError):
    """A mistake in the settings or in the user's files; its message is one clear line."""


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turns the errors that name a user's mistake into `UserError`.

    It wraps everything before the first training step. After that step a traceback is more useful.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


# ------------------------------------------------------------------------------ settings
def check(run: settings.Run, hooks: Hooks = NO_HOOKS) -> samplers.Sampler:
    """Checks names, packages and settings that depend on each other; returns the selector.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue] (jax adds it at run time)
        raise ValueError("JAX_ENABLE_X64 is set, but the model's indices have 32 bits: unset it")
    if run.wandb and importlib.util.find_spec("wandb") is None:
        raise ValueError("wandb is not installed: pip install -e '.[tracking]'")
    fields.check_word("reward.format", run.reward.format, answers.FORMATS)
    for name in run.reward.functions:
        if name != functions.RULES:
            functions.load(name)
    _check_model_names(run)
    _check_data_names(run.data)
    selector = build.make_selector(run)
    _check_selector(run, selector)
    _check_hooks(run, selector, hooks)
    if run.data.train == "procedural":
        check_size(run, selector.needs, run.data.num_train)
    gpus.check(run.layout, run.engine)
    return selector


def _check_model_names(run: settings.Run) -> None:
    model = run.model
    if bool(model.checkpoint) == bool(model.preset):
        raise ValueError(
            f"model.checkpoint={model.checkpoint!r} and model.preset={model.preset!r}: give exactly one, such as "
            "--config.model.checkpoint=DIR of a Qwen2.5-VL, Qwen3-VL, Qwen3.5, Qwen2.5, Qwen3 or Llama 3"
        )
    # Only tiny models may have random weights; of the others the size names the shape.
    tiny = [name for name in PRESETS if name.startswith("tiny")]
    if model.preset:
        fields.check_word("model.preset", model.preset, tiny)
    if model.size:
        fields.check_word("model.size", model.size, sorted(PRESETS.keys() - tiny))
    if run.lora.rank:
        peft.choose(run.lora, PRESETS.get(model.preset or model.size))


def _check_data_names(data: settings.Data) -> None:
    """Checks that there are training data, and either validation data or a held-out share."""
    if data.kind:
        fields.check_word("data.kind", data.kind, verify.KINDS)
    if not data.train:
        raise ValueError(
            "data.train is empty: give 'procedural', a .jsonl, .parquet or .arrow file, a directory of them or a "
            "name on the Hugging Face hub, --config.data.train=FILE"
        )
    if bool(data.validation) == bool(data.validation_share):
        raise ValueError(
            f"data.validation={data.validation!r} and data.validation_share={data.validation_share}: give one of "
            "them, a file of held-out questions or a share of data.train's, --config.data.validation_share=0.1"
        )
    for split, size in {"train": data.num_train, "validation": data.num_validation}.items():
        if getattr(data, split) == "procedural" and size < 1:
            raise ValueError(f"data.num_{split}={size}: must be in [1, inf) for procedural data")
    if data.train != "procedural" and (data.mixture or data.wrong_golds):
        raise ValueError(
            f"data.mixture={data.mixture} and data.wrong_golds={data.wrong_golds} are for the built-in questions only: "
            f"leave them out with data.train={data.train!r}"
        )
    try:
        procedural.expand_mixture(data.mixture)
    except (ValueError, TypeError) as error:
        raise ValueError(f"data.mixture: {error}") from error


def _check_hooks(run: settings.Run, selector: samplers.Sampler, hooks: Hooks) -> None:
    needs = {"benchmarks": bool(run.eval.benchmarks), "variants": selector.needs.variants}
    for name, is_needed in needs.items():
        if is_needed and getattr(hooks, name) is None:
            raise ValueError(
                f"eval.benchmarks={run.eval.benchmarks!r} or selector.name={run.selector.name!r} needs run.Hooks("
                f"{name}=...): give experiments.hooks.ALL, as experiments.train does"
            )
    if needs["benchmarks"]:
        hooks.benchmarks.paths(run.eval)
    if needs["variants"]:
        hooks.variants.check(run)


# ------------------------------------------------------------------------------ the selector
def _check_selector(run: settings.Run, selector: samplers.Sampler) -> None:
    """Checks that the run gives the selector exactly what it needs."""
    name, needs, refill = run.selector.name, selector.needs, run.refill
    samplers.require(
        name,
        needs,
        arrays=[x for x, value in run.selector.arrays.items() if value or x not in needs.named()],
        rounds=refill.max_rounds,
        passes=run.measure.every > 0 or needs.passes == "first",
        hints={
            "arrays": "name metadata fields in selector.arrays, such as 'family,level', or set measure.every",
            "passes": "set measure.every=0",
            "rounds": f"set refill.max_rounds={needs.rounds}",
        },
    )
    if needs.variants and refill.max_rounds != 1:
        raise ValueError(
            f"refill.max_rounds={refill.max_rounds}, but the selector asks for variants, whose "
            "groups belong together: set refill.max_rounds=1"
        )
    if run.engine.max_lag and (run.measure.every or needs.variants):
        raise ValueError(
            f"engine.max_lag={run.engine.max_lag}: selector.name={name!r} makes passes over all items "
            "or draws variants, so no batch can be made ahead: set engine.max_lag=0"
        )


def check_size(run: settings.Run, needs: samplers.Needs, num_train: int) -> None:
    """Checks that the training set is large enough for a step, all rounds included, and the budget for one.

    Raises:
        ValueError: names the sizes and the fix.
    """
    num_items, rounds = run.num_prompts // needs.places, needs.rounds or 1
    # A selector made for several rounds may need all of them: each round may drop all its groups.
    if num_items * rounds > num_train:
        of_rounds = f" in each of {run.selector.name}'s {rounds} rounds" * (rounds > 1)
        raise ValueError(
            f"num_prompts={run.num_prompts}{of_rounds} is larger than the training set of {num_train} usable "
            f"items: lower num_prompts or give more data{needs.or_remove('rounds')}"
        )
    run = run.with_items(num_train, needs.places)
    measures = run.measure.every > 0 or needs.passes == "first"
    first_pass = measures * num_train * run.resolved_measure.num_rollouts
    least = first_pass + run.num_prompts * run.num_rollouts
    if run.budget and run.max_rollouts < least:
        raise ValueError(
            f"budget={run.budget} is {run.max_rollouts} answers, less than the {least} of one step and of the pass "
            f"over all items before it ({first_pass}): give more, or 0 for no limit"
        )


# ------------------------------------------------------------------------------ the model
def check_model(run: settings.Run, directory: str) -> None:
    """Checks everything that depends on the model, using only the config in its directory.

    Raises:
        ValueError: the mesh does not divide a batch or the model, the model is of another size,
            or prompts and answers are longer than its positions.
    """
    devices = mesh.make(**run.mesh.to_dict())
    micro = run.batch.prompts_per_microbatch
    mesh.check_batch(devices, "batch.prompts_per_microbatch", micro)
    shape, dtype = files.load_config(directory), compute_dtype(run.model, devices)
    size, of = run.model.size, lambda shape: (shape.text.width, shape.text.num_layers)
    if size and of(PRESETS[size]) != of(shape):
        raise ValueError(
            f"model.size={size!r}, but the checkpoint in {directory} has another shape: give another one, or "
            "--config.model.size= for any"
        )
    answer = max(run.sampling.max_tokens, run.eval.max_tokens)
    if run.data.max_prompt_length + answer > shape.text.max_positions:
        raise ValueError(
            f"data.max_prompt_length={run.data.max_prompt_length} and answers of {answer} tokens are more "
            f"than the {shape.text.max_positions} positions of the model (max_position_embeddings): lower "
            "data.max_prompt_length, sampling.max_tokens or eval.max_tokens"
        )
    abstract_policy(shape, devices, dtype, run.lora)  # called only for its errors


# ------------------------------------------------------------------------------ the data
def check_data(run: settings.Run, selector: samplers.Sampler, data: Datasets) -> settings.Run:
    """Checks the rows, and returns the run with `num_steps` for them.

    It prints unexpected lengths and sizes.

    Raises:
        ValueError: names the sizes or the files, and the fix.
    """
    num_train = len(data.train)
    check_size(run, selector.needs, num_train)
    selector.init(num_train, **data.arrays)  # called only for its errors
    if not run.data.train == run.data.validation == "procedural":  # both are drawn, without overlap
        _check_held_out(run.data, data)
    _check_lengths(run, data)
    if line := data.build_prompt.on_pictures(data.train.notes["size"]):
        print(line)
    return run.with_items(num_train, selector.needs.places)


def _check_held_out(data: settings.Data, usable: Datasets) -> None:
    """Prints how many validation questions are also trained on; raises ValueError if all are."""
    if data.validation == "procedural":
        print(
            f"WARNING: the validation is of the built-in questions, not of {data.train}: set data.validation to a "
            "file of yours, or hold rows out, --config.data.validation= --config.data.validation_share=0.1"
        )
    asked = usable.validation.notes["asked"]
    num_trained = int(np.isin(asked, usable.train.notes["asked"]).sum())
    if num_trained == len(asked):
        raise ValueError(
            f"data.validation={data.validation!r}: all of its {num_trained} questions are also in "
            f"data.train={data.train!r}: validate on questions that are not trained on"
        )
    if num_trained:
        print(f"validation: {num_trained} of {len(asked)} questions are also in the training data")


def _check_lengths(run: settings.Run, data: Datasets) -> None:
    """Prints how many rows' own answers are cut; raises ValueError if no right answer is possible."""
    form, target = run.reward.format, data.build_prompt.target
    # A bare box is also right, even without the end of the turn.
    not_needed = len(target("", form)) - len(target("", "boxed")) + 1
    for split, limits in {"train": run.sampling, "validation": run.eval}.items():
        length_I, most = getattr(data, split).notes["length"], limits.max_tokens
        line = (
            f"{split}: {limits.path}max_tokens={most} cuts the own answers of {(length_I > most).sum():,} of "
            f"{len(length_I):,} rows, which take up to {length_I.max()} tokens in the requested form"
        )
        by_rules = split == "train" and not run.reward.functions  # functions may reward any answer
        if by_rules and length_I.min() - not_needed > most:
            raise ValueError(f"{line}, so nothing can be earned: raise it")
        if length_I.max() > most:
            print(line)


def check_reward(run: settings.Run, data: Datasets) -> None:
    """Calls the user's reward functions on rows spread over the data and prints what they return.

    Raises:
        ValueError: a function fails; names it, the row and the answer.
    """
    if run.reward.functions:
        step = max(1, len(data.train) // NUM_TRIED)
        items = [data.train[i] for i in range(0, len(data.train), step)][:NUM_TRIED]
        encode, opening = data.build_prompt.tokenizer.encode, data.build_prompt.opening
        judge = build.make_judge(run.reward, opening)
        print(trial.check(judge, items, run.reward.format, encode, opening))
