"""Writes weights for an engine that reads files: a directory of safetensors."""

import os
import pathlib
import shutil
from collections.abc import Iterable, Iterator

import jax
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

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
    """Writes weights in place of all that is in `directory`, and returns where.

    The engine must see the same path: /dev/shm (fast, because it is memory) on one machine, or a disk that
    several machines share. Each version has a folder of its own, which no cache of a shared disk knows.

    Args:
        tensors: (Hugging Face name, values) pairs; one is fetched at a time.
        directory: of this run alone.
        version: of the weights.
        dtype: that the engine computes in.

    Raises:
        EngineFailure: the disk is full or cannot be written.
    """
    # Absolute, because the server may run in another working directory.
    path = pathlib.Path(os.path.abspath(directory), f"version_{version:08}")
    shutil.rmtree(path.parent, ignore_errors=True)
    try:
        path.mkdir(parents=True)
        for i, shard in enumerate(_shards(tensors, dtype)):
            file = path / f"model-{i:05}.safetensors"
            safetensors_numpy.save_file(shard, file, metadata={"format": "pt"})
            file.chmod(0o644)  # the engine may run as another user
            shard.clear()  # frees its memory for the next shard
    except (OSError, safetensors.SafetensorError) as error:
        raise EngineFailure(
            f"version {version} of the weights was not written to {path} ({error}): free space there, "
            "or choose another engine.sync_directory"
        ) from error
    return str(path)


def _shards(tensors, dtype) -> Iterator[dict[str, np.ndarray]]:
    """Yields the tensors of one file at a time, on the host."""
    shard, left = {}, SHARD_BYTES
    for name, value in tensors:
        need = dtype.itemsize * value.size
        if shard and need > left:
            yield shard
            shard, left = {}, SHARD_BYTES
        # Cast on the device, so that bfloat16 halves the traffic from the device to the host.
        shard[name] = np.ascontiguousarray(jax.device_get(value.astype(dtype, copy=False)))
        left -= need
    if shard:
        yield shard
