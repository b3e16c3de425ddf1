"""Writes weights for an engine that reads files: a directory of safetensors."""

import os
import pathlib
import shutil
from collections.abc import Iterable

import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from vade_jax.models.qwen import files
from vade_jax.rollout.engine import EngineFailure
from vade_jax.types import Array

SHARD_BYTES = 1_000_000_000  # the largest size of a file, unless a single tensor is larger
NamedTensors = Iterable[tuple[str, Array]]


def write(
    tensors: NamedTensors,
    directory: str | os.PathLike[str],
    version: int,
    dtype: np.dtype,
) -> str:
    """Replaces the content of `directory` by the weights, and returns their path.

    The engine must see the same path: /dev/shm (fast, because it is memory) on one machine, or a disk that
    several machines share. Each version has a new folder, which no cache of a shared disk knows.

    Args:
        tensors: (Hugging Face name, values) pairs; one is fetched at a time.
        directory: used by this run alone.
        version: version of the weights.
        dtype: the compute dtype of the engine.

    Raises:
        EngineFailure: the disk is full or cannot be written.
    """
    # Absolute, because the server may run in another working directory.
    path = pathlib.Path(os.path.abspath(directory), f"version_{version:08}")
    shutil.rmtree(path.parent, ignore_errors=True)
    try:
        path.mkdir(parents=True)
        for i, shard in enumerate(files.shards(tensors, dtype, SHARD_BYTES)):
            file = path / f"model-{i:05}.safetensors"
            safetensors_numpy.save_file(shard, file, metadata={"format": "pt"})
            file.chmod(0o644)  # the engine may run as another user
    except (OSError, safetensors.SafetensorError) as error:
        raise EngineFailure(
            f"version {version} of the weights was not written to {path} ({error}): free space there, "
            "or choose another engine.sync_directory"
        ) from error
    return str(path)
