"""Reads a model in GGUF, the format of llama.cpp; needs the extra `gguf`, and torch.

transformers knows how GGUF packs its numbers, so it reads them. It cannot save what it has read so:
`files.save` does.
"""

import importlib.util
import pathlib
from typing import Any

import jax.numpy as jnp
import numpy as np

from vade_jax import lfs
from vade_jax.models.qwen import config, files, weights


def to_hugging_face(source: pathlib.Path, target: pathlib.Path, dtype: str) -> None:
    """Writes the model and tokenizer of a GGUF file as a Hugging Face directory.

    Quantised numbers become those of `dtype` that they stand for.

    Raises:
        ValueError: a package is missing, the file is damaged, or the model is not one of `config.FAMILIES`.
    """
    lfs.refuse_pointer(source)
    for package in ("torch", "gguf", "transformers"):
        if not importlib.util.find_spec(package):
            raise ValueError(
                f"--source={source} needs the package {package}: pip install torch 'vade_jax[gguf]'"
            )
    import torch
    import transformers

    where: dict[str, Any] = {"gguf_file": source.name}
    try:
        made = transformers.AutoModelForCausalLM.from_pretrained(
            source.parent, dtype=torch.float32, **where
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(source.parent, **where)
    except Exception as error:  # transformers, gguf and torch raise many kinds
        first = str(error).strip().partition("\n")[0][:200]
        raise ValueError(
            f"--source={source} cannot be read as GGUF ({type(error).__name__}: {first})"
        ) from error
    # GGUF holds float32: 1e-5 comes as 9.999999747378752e-06, another number for whoever reads the JSON.
    fields = {k: _shortest(v) for k, v in made.config.to_dict().items()}
    fields.pop("quantization_config", None)  # how the file was packed; the numbers are plain now
    shape = config.Config.from_hf(fields)
    named = {name: tensor.numpy() for name, tensor in made.state_dict().items()}
    params = weights.to_params(shape, named, np.float32)
    tokenizer.save_pretrained(target)
    files.save(target, shape, params, jnp.dtype(dtype))


def _shortest(value: Any) -> Any:
    return float(str(np.float32(value))) if isinstance(value, float) else value
