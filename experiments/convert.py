"""Writes the policy of a run's checkpoint, or a GGUF file, as a Hugging Face directory.

    python -m experiments.convert --source=runs/tiny_gspo --target=DIR [--step=100]
    python -m experiments.convert --source=MODEL.gguf --target=DIR     (pip install torch 'vade_jax[gguf]')

An adapter is merged into the weights that it was trained on. GGUF is the format of llama.cpp; its quantised
numbers are converted to --dtype. All parameters are in the host's memory once.
"""

import contextlib
import importlib.util
import pathlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags, logging

from experiments import commands, errors
from vade_jax import atomic, settings, types
from vade_jax.data import hub
from vade_jax.models.qwen import config, config_json, files, lora, peft, weights
from vade_jax.store import checkpoints, run_file


def convert(
    source: types.PathLike,
    target: types.PathLike,
    dtype: str = "float32",
    step: int | None = None,
    base: types.PathLike | None = None,
) -> None:
    """Writes `target`, which must not exist, atomically; the arguments are the flags.

    Raises:
        ValueError: a file is damaged, or `base` is not the model that an adapter was trained on.
        FileNotFoundError: the source, the step or the model is missing.
    """
    source, target = pathlib.Path(source).absolute(), pathlib.Path(target).absolute()
    if target.exists():
        raise ValueError(f"--target={target} exists: give a new directory")
    if source.suffix == ".gguf":
        shape, params, tokenizer = of_gguf(source)
        copy_tokenizer = tokenizer.save_pretrained
    elif (source / "checkpoints").is_dir():
        base, shape, params = of_run(source, step, base)
        copy_tokenizer = lambda directory: files.copy_tokenizer(base, directory)
    else:
        raise ValueError(f"--source={source} is neither a run directory nor a GGUF file")
    with atomic.replacing_directory(target) as fresh:
        copy_tokenizer(fresh)
        files.save(fresh, shape, params, jnp.dtype(dtype))


def of_run(
    run: pathlib.Path, step: int | None, base: types.PathLike | None
) -> tuple[str, config.Config, types.Params]:
    """Returns the model that a run started from, its shape, and the run's parameters after a step."""
    device = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    with contextlib.closing(checkpoints.manager_of(run / "checkpoints")) as saved:
        step = saved.latest_step() if step is None else step
        if step is None:
            raise FileNotFoundError(f"{run} has no checkpoint")
        content, trees = checkpoints.restore(saved, step, {"policy": None})
    started, params = content["config"], jax.device_put(trees["policy"], device)
    own = run / "tiny_model" if started["model"]["preset"] else started["model"]["checkpoint"]
    base = hub.model(str(base or own))
    shape = files.load_config(base)
    options = settings.Lora.from_dict(started.get("lora", {}))
    if not options.rank:
        return base, shape, params
    start = run_file.read(run)["identity"]["model"]
    if start and start != files.identity(base):  # 0: a commit on the hub, or the run's own model
        raise ValueError(
            f"--model={base} is another model than the run's adapter learned on: {own}"
        )
    _, weights_of_base = files.load(base)
    return base, shape, lora.join(weights_of_base, params, peft.choose(options, shape).scale)


def of_gguf(source: pathlib.Path) -> tuple[config.Config, types.Params, Any]:
    """Returns the shape, the parameters and the transformers tokenizer of a GGUF file.

    transformers can read the packed numbers of GGUF, but cannot save models that it has read so.

    Raises:
        ValueError: a package is missing, the file is damaged, or the model is not one of `config.FAMILIES`.
    """
    for package in ("torch", "gguf", "transformers"):
        if not importlib.util.find_spec(package):
            raise ValueError(
                f"--source={source} needs the package {package}: pip install torch 'vade_jax[gguf]'"
            )
    import torch
    import transformers

    where: dict[str, Any] = {"gguf_file": source.name}
    try:
        reference = transformers.AutoModelForCausalLM.from_pretrained(
            source.parent, dtype=torch.float32, **where
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, **where)
    except Exception as error:  # transformers, gguf and torch raise many kinds
        first = str(error).strip().partition("\n")[0][:200]
        raise ValueError(
            f"--source={source} cannot be read as GGUF ({type(error).__name__}: {first})"
        ) from error
    # GGUF holds float32: 1e-5 would be written to JSON as 9.999999747378752e-06.
    shortest = lambda x: float(str(np.float32(x))) if isinstance(x, float) else x
    fields = {name: shortest(x) for name, x in reference.config.to_dict().items()}
    fields.pop("quantization_config", None)  # how the file was packed; the numbers are plain now
    shape = config_json.read(fields)
    named = {name: tensor.numpy() for name, tensor in reference.state_dict().items()}
    return shape, weights.to_params(shape, named, np.float32), tokenizer


def main(source: str, target: str, dtype: str, step: int | None, model: str | None) -> None:
    """Converts the source; see `convert`."""
    logging.set_verbosity(logging.WARNING)  # orbax logs every operation at INFO
    jax.config.update("jax_platforms", "cpu")  # the host's memory holds a 7B
    with errors.user_errors():
        convert(source, target, dtype, step, model)
    print("in", target)


if __name__ == "__main__":  # flags that must be given are those of this command alone
    values = [
        flags.DEFINE_string("source", None, "A run directory or a GGUF file.", required=True),
        flags.DEFINE_string("target", None, "A new directory.", required=True),
        flags.DEFINE_enum(
            "dtype", "float32", ["float32", "bfloat16"], "dtype of the parameters that are written."
        ),
        flags.DEFINE_integer("step", None, "The step of a checkpoint; default: the latest."),
        flags.DEFINE_string(
            "model", None, "The model that the run started from, if it is not where it was then."
        ),
    ]
    app.run(lambda _: main(*(flag.value for flag in values)), flags_parser=commands.parse)
