"""Writes weights for an engine that reads files: one directory of safetensors for each version."""

import os
import pathlib
import re
import shutil
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from vade_jax.rollout.engine import EngineFailure

SHARD_BYTES = 1_000_000_000
_VERSION = re.compile(r"version_\d+")


class WeightDirectory:
    """One version of a model's weights under a path.

    The engine must see the same path: /dev/shm (fast, because it is memory) on one machine, or a disk
    that several machines share.

    Args:
        path: the directory, created if it is missing. Versions that an earlier run left are removed;
            everything else in it stays.
        dtype: float32 or bfloat16, the dtype that the engine computes in.
        shard_bytes: the largest size of a file, unless a single tensor is larger. The tensors of one
            file are held on the host at a time.
    """

    def __init__(self, path: str | os.PathLike, dtype: Any, *, shard_bytes: int = SHARD_BYTES):
        # Absolute, because the server may run in another working directory.
        self.path = pathlib.Path(os.path.abspath(path))
        self._dtype = np.dtype(dtype)
        self._shard_bytes = shard_bytes
        self.path.mkdir(parents=True, exist_ok=True)
        self.clear()

    def write(self, tensors: Iterable[tuple[str, np.ndarray | jax.Array]], version: int) -> str:
        """Writes a version in place of the one before, and returns its directory.

        Args:
            tensors: (Hugging Face name, values) pairs; one is fetched at a time.
            version: of the weights.

        Raises:
            EngineFailure: the disk is full or cannot be written.
        """
        self.clear()
        directory = self.path / f"version_{version:08}"
        try:
            directory.mkdir()
            for i, shard in enumerate(self._shards(tensors)):
                path = directory / f"model-{i:05}.safetensors"
                safetensors_numpy.save_file(shard, path, metadata={"format": "pt"})
                path.chmod(0o644)  # the engine may run as another user
                shard.clear()  # frees its memory for the next shard
        except (OSError, safetensors.SafetensorError) as error:
            raise EngineFailure(
                f"version {version} of the weights was not written to {self.path} "
                f"({error}): free space there, or choose another engine.sync_directory"
            ) from error
        return str(directory)

    def clear(self) -> None:
        """Removes every version."""
        for path in self.path.iterdir():
            if _VERSION.fullmatch(path.name):
                shutil.rmtree(path)

    def _shards(self, tensors) -> Iterator[dict[str, np.ndarray]]:
        """Yields the tensors of one file at a time, on the host."""
        shard, room = {}, self._shard_bytes
        for name, value in tensors:
            need = self._dtype.itemsize * value.size
            if shard and need > room:
                yield shard
                shard, room = {}, self._shard_bytes
            # Cast on the device, so that bfloat16 halves the traffic from the device to the host.
            value = np.asarray(value.astype(self._dtype, copy=False))
            shard[name] = np.ascontiguousarray(value)
            room -= need
        if shard:
            yield shard
