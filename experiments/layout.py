"""Which GPU trains and which serves: before JAX or vLLM touch one.

Colocated: every GPU does both, and `layout.train_memory` and `layout.serve_memory` share it out. Split:
`layout.train` and `layout.serve` name different GPUs. Without a GPU nothing here has an effect.
"""

import os

import jax
from ml_collections import ConfigDict

DEFAULT_TRAIN_MEMORY = 0.75  # what XLA takes of a GPU when nothing is said


def apply(c: ConfigDict) -> None:
    """Gives JAX its GPUs and its share of their memory; call it before any device is used."""
    if c.layout.train:
        jax.config.update("jax_cuda_visible_devices", c.layout.train)
    if c.layout.train_memory:
        os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = str(c.layout.train_memory)


def check(c: ConfigDict) -> None:
    """Checks that what the run starts fits on the GPUs that it names.

    Raises:
        ValueError: names the fields, their values and the fix.
    """
    train, serve = devices(c.layout.train), devices(c.layout.serve)
    wanted = c.engine.num_servers * c.engine.tensor_parallel
    if serve and not c.engine.urls and len(serve) != wanted:
        raise ValueError(
            f"layout.serve={c.layout.serve!r} names {len(serve)} GPUs, but engine.num_servers="
            f"{c.engine.num_servers} x engine.tensor_parallel={c.engine.tensor_parallel} "
            f"is {wanted}: name as many"
        )
    shared = bool(set(train) & set(serve)) or not (train and serve)
    total = (c.layout.train_memory or DEFAULT_TRAIN_MEMORY) + c.layout.serve_memory
    if shared and c.layout.train_memory and not c.layout.sleep and total > 1:
        raise ValueError(
            f"layout.train_memory={c.layout.train_memory} and layout.serve_memory="
            f"{c.layout.serve_memory} are more than the GPU they share: lower one, or give "
            "layout.train and layout.serve different GPUs"
        )


def devices(text: str) -> list[str]:
    """Returns the GPUs of "0,1"; an empty text names none."""
    return [name.strip() for name in text.split(",") if name.strip()]


def of_server(c: ConfigDict, number: int) -> dict[str, str]:
    """Returns the environment variables that give server `number` its GPUs."""
    size = c.engine.tensor_parallel
    names = devices(c.layout.serve) or [
        str(i) for i in range(c.engine.num_servers * size)
    ]
    return {"CUDA_VISIBLE_DEVICES": ",".join(names[number * size :][:size])}
