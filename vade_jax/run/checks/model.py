"""Checks the run's first checkpoint against mesh and settings, without reading weights."""

import dataclasses

import jax.numpy as jnp

from vade_jax import settings
from vade_jax.models.qwen import config, files, presets
from vade_jax.run import build
from vade_jax.trainer import mesh
from vade_jax.trainer.policy import abstract_policy, compute_dtype


def check_model(run: settings.Run, directory: str) -> None:
    """Checks everything that depends on the model, using only the config in its directory.

    Raises:
        ValueError: the mesh does not divide a batch or the model, the model is of another size,
            `optimizer.frozen` names none of its weights, or prompts and answers are longer than what it
            can count.
    """
    devices = mesh.make(**run.mesh.to_dict())
    micro = run.batch.prompts_per_microbatch
    mesh.check_batch(devices, "batch.prompts_per_microbatch", micro)
    shape, dtype = files.load_config(directory), compute_dtype(run.model, devices)
    check_size(run.model.size, shape, directory)
    answer = max(run.sampling.max_tokens, run.eval.max_tokens)
    if run.data.max_prompt_length + answer > shape.text.max_positions:
        raise ValueError(
            f"data.max_prompt_length={run.data.max_prompt_length} and answers of {answer} tokens are more "
            f"than the {shape.text.max_positions} positions of the model (max_position_embeddings): lower "
            "data.max_prompt_length, sampling.max_tokens or eval.max_tokens"
        )
    param_dtype = jnp.dtype(run.model.param_dtype)
    # Called only for its errors.
    build.make_optimizer(run, abstract_policy(shape, devices, dtype, run.lora, param_dtype))


def _same_sizes(one: config.TextConfig, other: config.TextConfig) -> bool:
    """Base, Instruct, Math and Coder of a size differ in their positions, in no weight's shape."""
    positions = {name: getattr(one, name) for name in ("rope_theta", "max_positions")}
    return dataclasses.replace(other, **positions) == one


def check_size(wanted: str, shape: config.Config, directory: str) -> None:
    """Raises ValueError if the shape is not `wanted`, before weights are read."""
    text = shape.text
    names = [name for name, preset in presets.PRESETS.items() if _same_sizes(preset.text, text)]
    if not wanted or wanted in names:
        return
    found = names[0] if names else f"{text.num_layers} layers of width {text.width}"
    raise ValueError(
        f"model.size={wanted!r}, but the checkpoint in {directory} has the shape of "
        f"{found!r}: give another one, or --config.model.size= for any"
    )
