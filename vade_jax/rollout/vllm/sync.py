"""Writes weights for an engine that reads files: one directory of safetensors for each version."""

import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.models.qwen import files
from vade_jax.rollout.engine import EngineFailure

SHARD_BYTES = 1_000_000_000
_VERSION = re.compile(r"version_\d+|\.version_.*")  # complete; or half-written, or being replaced


class WeightDirectory:
    """Versions of a model's weights under one path; only the newest is kept.

    The engine must see the same path: /dev/shm (fast, because it is memory) on one machine, or a disk
    that several machines share. A version stays until the next one is complete, so a server that
    restarts can read it again. While a version is written, the path must have room for two.

    Args:
        path: the directory, created if it is missing. Versions that an earlier run left are removed;
            everything else in it stays.
        dtype: float32 or bfloat16, the dtype that the engine computes in.
        shard_bytes: the largest size of a file, unless a single tensor is larger. The tensors of one
            file are held on the host at a time.

    Raises:
        ValueError: another dtype.
    """

    def __init__(self, path: str | os.PathLike, dtype: Any, *, shard_bytes: int = SHARD_BYTES):
        # Absolute, because the server may run in another working directory.
        self.path = pathlib.Path(os.path.abspath(path))
        self._dtype = np.dtype(dtype)
        self._shard_bytes = shard_bytes
        if self._dtype not in (np.dtype(np.float32), np.dtype(jnp.bfloat16)):
            raise ValueError(f"weights of dtype {self._dtype}: use float32 or bfloat16")
        self.path.mkdir(parents=True, exist_ok=True)
        self.clear()

    def write(self, tensors: Iterable[tuple[str, np.ndarray | jax.Array]], version: int) -> str:
        """Writes a version, removes older ones, and returns the directory of the new one.

        Args:
            tensors: (Hugging Face name, values) pairs; one is fetched at a time.
            version: of the weights.

        Raises:
            EngineFailure: the disk is full or cannot be written.
            ValueError: a name comes twice, or there are no tensors.
        """
        # Written under another name and then renamed, so that readers see all of it or nothing.
        fresh = pathlib.Path(tempfile.mkdtemp(prefix=".version_", dir=self.path))
        place = self.path / f"version_{version:08}"
        try:
            fresh.chmod(0o755)  # the engine may run as another user
            self._fill(fresh, tensors, version)
            if place.exists():
                place.rename(fresh.with_name(f"{fresh.name}.old"))
            fresh.rename(place)
            # Old versions are removed last. A crash before this leaves one, which the next start removes.
            self.clear(but=place)
        except OSError as error:
            raise EngineFailure(
                f"version {version} of the weights was not written to {self.path} "
                f"({error}): free space there, or choose another directory"
            ) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return str(place)

    def clear(self, but: pathlib.Path | None = None) -> None:
        """Removes every version except `but`, and the half-written ones that a crash left."""
        for path in self.path.iterdir():
            if _VERSION.fullmatch(path.name) and path != but:
                shutil.rmtree(path)

    def _fill(self, directory, tensors, version) -> None:
        weight_map: dict[str, str] = {}
        size = 0
        for i, shard in enumerate(self._shards(tensors), start=1):
            file = f"model-{i:05}.safetensors"
            sizes = {name: value.shape for name, value in shard.items()}
            files.write_tensors(directory / file, sizes, self._dtype, iter(shard.values()))
            weight_map |= dict.fromkeys(shard, file)
            size += sum(value.nbytes for value in shard.values())
            shard.clear()  # frees its memory for the next shard
        if not weight_map:
            raise ValueError("no tensor to write")
        metadata = {"total_size": size, "version": version}
        index = {"metadata": metadata, "weight_map": weight_map}
        (directory / files.INDEX).write_text(json.dumps(index, indent=2) + "\n")

    def _shards(self, tensors) -> Iterator[dict[str, np.ndarray]]:
        """Yields the tensors of one file at a time, on the host."""
        shard, room, seen = {}, self._shard_bytes, set()
        for name, value in tensors:
            if name in seen:
                raise ValueError(f"tensor {name} comes twice")
            seen.add(name)
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
