"""Adapters under published names: chooses the layers that get one, and writes a directory for PEFT."""

import json
import os
import pathlib
import re
from collections.abc import Iterator

import numpy as np
from flax import traverse_util
from safetensors.numpy import save_file

from vade_jax import settings, types
from vade_jax.models.qwen import config, lora, model, weights

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."  # precedes the module's name in the name of every tensor


# ------------------------------------------------------------------------------ which layers
def choose(options: settings.Lora, shape: config.Config | None = None) -> lora.Adapter:
    """Returns the adapter that the settings ask for.

    `shape` is the model's config. None: the model is not known yet; the layers of all families are then
    checked.

    Raises:
        ValueError: the pattern is invalid or matches no layer, or the model has no vision tower.
    """
    if options.vision and shape is not None and shape.vision is None:
        raise ValueError("lora.vision=True, but the model has no vision tower: leave it at False")
    try:
        pattern = re.compile(options.targets)
    except re.error as error:
        raise ValueError(f"lora.targets={options.targets!r} is not a pattern: {error}") from error
    known = {
        path: name
        for path, name in _layers(shape).items()
        if options.vision or not path.startswith("vision/")
    }
    # Published files have either name: those of Qwen3-VL and of transformers 5 the nested one.
    is_meant = lambda name: pattern.search(name) or pattern.search(weights.nested(name))
    paths = tuple(path for path, name in known.items() if is_meant(name))
    if not paths:
        more = "" if options.vision else "; lora.vision=True adds the vision tower's"
        raise ValueError(
            f"lora.targets={options.targets!r} is in no layer's name; they are "
            f"{', '.join(known.values())}{more}"
        )
    return lora.Adapter(options.rank, options.alpha, paths)


def _layers(shape: config.Config | None) -> dict[str, str]:
    """Returns {path: published name without the layer's number} of all linear layers except the head."""
    own = shape and traverse_util.flatten_dict(model.abstract(shape), sep="/")
    return {
        path.removesuffix("/kernel"): name.removesuffix(".weight").replace(".{}", "")
        for path, (name, transform) in weights.TABLE.items()
        if transform is weights.LINEAR and path != "lm_head/kernel" and (own is None or path in own)
    }


# ------------------------------------------------------------------------------ the directory
def save(
    directory: str | os.PathLike,
    shape: config.Config,
    adapter: lora.Adapter,
    params: types.Params,
    base: str,
) -> None:
    """Writes an adapter in PEFT's format, for the model with config `shape` in the directory `base`.

    Modules have the names that they have in memory in transformers 5. The tensors are float32.
    """
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    tensors = dict(_tensors(shape, adapter, params))
    save_file(tensors, directory / TENSORS, metadata={"format": "pt"})
    modules = (name.rpartition(".lora_")[0].removeprefix(_PREFIX) for name in tensors)
    # One pattern for all layers: a layer's number is the first number between two dots.
    patterns = {re.sub(r"\\\.\d+\\\.", r"\\.\\d+\\.", re.escape(name), count=1) for name in modules}
    content = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": adapter.rank,
        "lora_alpha": adapter.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": "|".join(sorted(patterns)),
        "inference_mode": True,
    }
    # The config is written last: with it, the directory is complete.
    (directory / CONFIG).write_text(json.dumps(content, indent=2) + "\n")


def _tensors(
    shape: config.Config, adapter: lora.Adapter, params: types.Params
) -> Iterator[tuple[str, np.ndarray]]:
    """Yields (PEFT's name, tensor), with the axes in torch's order (out, in)."""
    for path in adapter.paths:
        pair = weights.get(params, f"{path}/{lora.NAME}")
        name = weights.TABLE[f"{path}/kernel"][0].removesuffix(".weight")
        name = weights.in_memory(shape, name)
        for letter, leaf in (("A", pair[lora.A]), ("B", pair[lora.B])):
            leaf = np.asarray(leaf, np.float32)
            stack = leaf if leaf.ndim == 3 else leaf[None]
            for i, layer in zip(weights.numbers(shape, path, len(stack)), stack, strict=True):
                tensor = f"{_PREFIX}{name.format(i)}.lora_{letter}.weight"
                yield tensor, np.ascontiguousarray(layer.T)
