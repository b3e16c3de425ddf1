"""Checks settings beyond their ranges: names, files, and settings that depend on each other."""

import itertools
import os

import jax

from vade_jax import fields, samplers, settings
from vade_jax.data import procedural, sources
from vade_jax.models.qwen import peft
from vade_jax.models.qwen.presets import PRESETS
from vade_jax.rewards import answers, functions, verify
from vade_jax.run import hooks
from vade_jax.run.checks import machine, selector


def check(run: settings.Run, given: hooks.Hooks = hooks.Hooks()) -> None:  # noqa: B008 (frozen)
    """Checks names, files, packages and settings that depend on each other; `given` are the run's hooks.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue] (jax adds it at run time)
        raise ValueError("JAX_ENABLE_X64 is set, but the model's indices have 32 bits: unset it")
    samplers.find(run.selector.name)
    fields.check_word("reward.format", run.reward.format, answers.FORMATS)
    for name in run.reward.functions:
        if name != functions.RULES:
            functions.load(name)
    if run.data.kind:
        fields.check_word("data.kind", run.data.kind, verify.KINDS)
    machine.check_packages(run.wandb, run.tensorboard)
    _check_data(run)
    _check_model(run.model)
    if run.lora.rank:
        peft.choose(run.lora, PRESETS.get(run.model.preset or run.model.size))
    _check_built_in(run)
    selector.check(run)
    check_hooks(given, run, selector.make(run).needs.variants)
    _check_lag(run)
    machine.check_engine(run.engine, run.layout)
    machine.check_memory(run.layout, run.engine)


def _check_model(model: settings.Model) -> None:
    if bool(model.checkpoint) == bool(model.preset):
        raise ValueError(
            f"model.checkpoint={model.checkpoint!r} and model.preset={model.preset!r}: "
            "give exactly one, such as --config.model.checkpoint=DIR of a Hugging Face "
            "Qwen2.5-VL, Qwen3-VL, Qwen2.5, Qwen3 or Llama checkpoint"
        )
    # Only tiny models may have random weights; of the others the size names the shape.
    is_tiny = lambda name: name.startswith("tiny")
    if model.preset:
        fields.check_word("model.preset", model.preset, list(filter(is_tiny, PRESETS)))
    if model.size:
        fields.check_word("model.size", model.size, list(itertools.filterfalse(is_tiny, PRESETS)))


def _check_data(run: settings.Run) -> None:
    sizes = {"train": run.data.num_train, "validation": run.data.num_validation}
    for split, size in sizes.items():
        path = getattr(run.data, split)
        if not path and not (split == "validation" and run.data.validation_share):
            or_share = ", or hold some rows out, --config.data.validation_share=0.1"
            raise ValueError(
                f"data.{split} is empty: give 'procedural', a .jsonl, .parquet or .arrow file, a directory of them "
                f"or a name on the Hugging Face hub, --config.data.{split}=FILE"
                f"{or_share if split == 'validation' else ''}"
            )
        if split == "validation" and path and run.data.validation_share:
            raise ValueError(
                f"data.validation_share={run.data.validation_share} with data.validation={path!r}: set one of "
                "them, --config.data.validation= or --config.data.validation_share=0"
            )
        if path == "procedural" and size < 1:
            raise ValueError(f"data.num_{split}={size}: must be in [1, inf) for procedural data")
    if run.data.train == "procedural" and not run.data.validation:
        raise ValueError("data.validation is empty: the built-in data have their own, 'procedural'")
    train, held_out = map(os.path.realpath, (run.data.train, run.data.validation))
    if run.data.validation and train == held_out and sources.is_of_one_split(run.data.train):
        raise ValueError(
            f"data.train={run.data.train!r} and data.validation={run.data.validation!r} are the same rows: "
            "validate on questions that are not trained on, in a file or a split of their own"
        )
    if run.data.train == "procedural":
        selector.check_data_size(run, run.data.num_train)
    elif run.data.wrong_golds:
        raise ValueError(
            f"data.wrong_golds={run.data.wrong_golds} with data.train={run.data.train!r}: golds of "
            "files are left as they are; set it to 0, or data.train='procedural'"
        )


def _check_lag(run: settings.Run) -> None:
    lag = f"engine.max_lag={run.engine.max_lag}"
    if not run.engine.max_lag:
        return
    if run.resolved_measure.every:
        raise ValueError(
            f"{lag}: selector.name={run.selector.name!r} rolls out all items every "
            f"{run.resolved_measure.every} steps, between which no batch may wait: set engine.max_lag=0"
        )
    if selector.make(run).needs.variants:
        raise ValueError(
            f"{lag}: variants of selector.name={run.selector.name!r} are drawn and not kept, so batches of them "
            "cannot wait: set engine.max_lag=0"
        )


def _check_built_in(run: settings.Run) -> None:
    """Checks the mixtures of the built-in data, and that the teacher's noise is of parts it teaches."""
    data, taught = run.data.mixture, run.warm_start.mixture or run.data.mixture
    if data and run.data.train != "procedural":
        raise ValueError(
            f"data.mixture with data.train={run.data.train!r}: only the built-in data, "
            "'procedural', are mixed"
        )
    for name, mixture in (("data", data), ("warm_start", taught)):
        try:
            weights = procedural.expand_mixture(mixture)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{name}.mixture: {error}") from error
    known = list(weights)
    for name, value in run.warm_start.noise.items():
        if name not in known:
            raise ValueError(
                f"warm_start.noise.{name}: {fields.did_you_mean(name, known)}"
                f"what is taught has {', '.join(known)}; --config.warm_start.noise={{}} is no noise"
            )
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"warm_start.noise.{name}={value!r}: must be a number")
        if not 0 <= value < 1:
            raise ValueError(f"warm_start.noise.{name}={value}: must be in [0, 1)")


def check_hooks(given: hooks.Hooks, run: settings.Run, asks_for_variants: bool) -> None:
    """Checks the settings that need hooks.

    Raises:
        ValueError: a hook is missing, or the hook rejects the settings.
    """
    if given.benchmarks is not None:
        given.benchmarks.paths(run.eval)
    elif run.eval.benchmarks:
        raise ValueError(
            f"eval.benchmarks={run.eval.benchmarks!r}: this run was started without them: give "
            "hooks=run.Hooks(benchmarks=experiments.evals.in_training), as experiments.train does"
        )
    if not asks_for_variants:
        return
    if given.variants is None:
        raise ValueError(
            f"selector.name={run.selector.name!r} asks for variants of items: give "
            "hooks=run.Hooks(variants=experiments.diva.hook), as experiments.train does"
        )
    given.variants.check(run)
