"""What can be wrong with a config, found before anything is built."""

import inspect

from ml_collections import ConfigDict

from vade_jax import samplers
from vade_jax.models.qwen25vl.config import PRESETS
from vade_jax.rewards import formats
from vade_jax.trainer import objectives

ENGINES = ("local",)
AT_LEAST = {
    "num_steps": 1,
    "num_prompts": 1,
    "warm_start.num_steps": 0,
    "warm_start.batch_size": 1,
    "data.length_multiple": 1,
    "engine.prompts_per_call": 1,
    "sampling.max_tokens": 1,
    "sampling.top_k": 0,
    "optimizer.learning_rate": 0,
    "batch.vocab_chunk": 1,
    "eval.every": 1,
    "eval.num_samples": 1,
    "eval.temperature": 0,
    "eval.max_tokens": 1,
    "checkpoint.every": 1,
    "checkpoint.keep": 1,
}


def config(c: ConfigDict) -> None:
    """Checks names, ranges and what has to divide what.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    _one_of("sampler.name", c.sampler.name, samplers.SAMPLERS)
    _one_of("engine.name", c.engine.name, ENGINES)
    _one_of("reward.format", c.reward.format, formats.FORMATS)
    _one_of("loss.old_logp", c.loss.old_logp, ("behaviour", "trainer"))
    _one_of("model.dtype", c.model.dtype, ("auto", "float32", "bfloat16"))
    _at_least("num_rollouts", c.num_rollouts, 2, "a group of one has no advantage")
    for name, low in AT_LEAST.items():
        section, _, field = name.rpartition(".")
        _at_least(name, (c[section] if section else c)[field], low)
    if c.sampling.temperature <= 0:
        raise ValueError(
            f"sampling.temperature={c.sampling.temperature}: rollouts need a "
            "temperature above 0 to differ (eval.temperature may be 0)"
        )
    if not 0 < c.sampling.top_p <= 1:
        raise ValueError(f"sampling.top_p={c.sampling.top_p}: must be in (0, 1]")
    if c.loss.old_logp == "trainer" and (c.sampling.top_p < 1 or c.sampling.top_k):
        raise ValueError(
            "loss.old_logp='trainer' knows no truncation: "
            "set sampling.top_p=1 and sampling.top_k=0, or old_logp='behaviour'"
        )
    if not 0 <= c.reward.format_weight < 1:
        raise ValueError(
            f"reward.format_weight={c.reward.format_weight}: must be in [0, 1)"
        )
    _divides(
        "batch.prompts_per_minibatch",
        c.batch.prompts_per_minibatch,
        "num_prompts",
        c.num_prompts,
    )
    _divides(
        "batch.prompts_per_microbatch",
        c.batch.prompts_per_microbatch,
        "batch.prompts_per_minibatch",
        c.batch.prompts_per_minibatch,
    )
    if c.data.train == "procedural":
        data_size(c, c.data.num_train)
    policy_loss(c)
    _sampler(c)
    _model_source(c)


def sampler_options(c: ConfigDict) -> dict:
    """Returns the keyword arguments of the sampler: G and its own."""
    return {"num_rollouts": c.num_rollouts, **c.sampler.options}


def policy_loss(c: ConfigDict) -> objectives.PolicyLoss:
    """Returns the loss; a dual clip of 0 in a config means none."""
    fields = {k: v for k, v in c.loss.items() if k != "old_logp"}
    return objectives.PolicyLoss(**fields | {"dual_clip": c.loss.dual_clip or None})


def data_size(c: ConfigDict, num_train: int) -> None:
    """Checks that a batch without duplicates exists."""
    if c.num_prompts > num_train:
        raise ValueError(
            f"num_prompts={c.num_prompts} is larger than the training set of {num_train} "
            "usable items: lower num_prompts or give more data"
        )


def _sampler(c):
    make = samplers.SAMPLERS[c.sampler.name]
    known = inspect.signature(make).parameters
    if unknown := [name for name in c.sampler.options if name not in known]:
        raise ValueError(
            f"sampler.options.{unknown[0]}: {c.sampler.name} takes {', '.join(known)}; "
            "a config's :uniform argument clears VADE's options"
        )
    make(**sampler_options(c))


def _model_source(c):
    if bool(c.model.checkpoint) == bool(c.model.preset):
        raise ValueError(
            f"model.checkpoint={c.model.checkpoint!r} and model.preset={c.model.preset!r}: "
            "give exactly one, such as --config.model.checkpoint=DIR of a Hugging Face "
            "Qwen2.5-VL checkpoint"
        )
    if c.model.preset:
        _one_of("model.preset", c.model.preset, PRESETS)
    for name in ("train", "validation"):
        if not c.data[name]:
            raise ValueError(
                f"data.{name} is empty: give 'procedural' or a .jsonl or .parquet file, "
                f"--config.data.{name}=FILE"
            )


def _one_of(name, value, options):
    if value not in options:
        raise ValueError(f"{name}={value!r}: one of {', '.join(options)}")


def _at_least(name, value, low, why=""):
    if value < low:
        raise ValueError(
            f"{name}={value}: must be at least {low}{why and ' (' + why + ')'}"
        )


def _divides(small_name, small, large_name, large):
    if small < 1 or large % small:
        raise ValueError(
            f"{small_name}={small} does not divide {large_name}={large}: "
            "choose a divisor"
        )
