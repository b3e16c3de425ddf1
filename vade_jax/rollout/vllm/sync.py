"""Weights on their way to an engine that reads files: a directory of safetensors per version."""

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
_VERSION = re.compile(r"version_\d+|\.version_.*")  # whole; or half-written, or on its way out


class WeightDirectory:
    """Versions of a model's weights under one path, of which the newest is kept.

    The engine must see the same path: /dev/shm on one machine (memory, so fast), a shared disk for
    several. A version stays until the next one is complete, so one that was just handed out can be
    read again (by a server that restarts); while a version is written both are there.

    Args:
        path: made if missing. What else is in it is left alone, but versions of an earlier run are
            removed.
        dtype: float32 or bfloat16; what the engine computes in.
        shard_bytes: size of a file, and what is held on the host while it is filled. A larger tensor
            is a file of its own.
    """

    def __init__(self, path: str | os.PathLike, dtype: Any, *, shard_bytes: int = SHARD_BYTES):
        # A server that runs elsewhere has a working directory of its own.
        self.path = pathlib.Path(os.path.abspath(path))
        self._dtype = np.dtype(dtype)
        self._shard_bytes = shard_bytes
        if self._dtype not in (np.dtype(np.float32), np.dtype(jnp.bfloat16)):
            raise ValueError(f"weights of dtype {self._dtype}: use float32 or bfloat16")
        self.path.mkdir(parents=True, exist_ok=True)
        self.clear()

    def write(self, tensors: Iterable[tuple[str, np.ndarray | jax.Array]], version: int) -> str:
        """Returns the directory of this version, and removes older ones.

        Args:
            tensors: (Hugging Face name, values); one is fetched at a time.
            version: of the weights.

        Raises:
            EngineFailure: the disk is full or cannot be written.
            ValueError: a name comes twice, or there is no tensor.
        """
        # Written under another name and then renamed: readers see it whole or not at all.
        fresh = pathlib.Path(tempfile.mkdtemp(prefix=".version_", dir=self.path))
        place = self.path / f"version_{version:08}"
        try:
            fresh.chmod(0o755)  # the engine may be another user's
            self._fill(fresh, tensors, version)
            if place.exists():
                place.rename(fresh.with_name(f"{fresh.name}.old"))
            fresh.rename(place)
            # Last: a crash before it leaves a version too many, which the next start removes.
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
        """Removes every version, and what a crash left half-written."""
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
            shard.clear()  # its memory is needed for the next one
        if not weight_map:
            raise ValueError("no tensor to write")
        metadata = {"total_size": size, "version": version}
        index = {"metadata": metadata, "weight_map": weight_map}
        (directory / files.INDEX).write_text(json.dumps(index, indent=2) + "\n")

    def _shards(self, tensors) -> Iterator[dict[str, np.ndarray]]:
        """Yields the tensors of one file after the other, on the host."""
        shard, room, seen = {}, self._shard_bytes, set()
        for name, value in tensors:
            if name in seen:
                raise ValueError(f"tensor {name} comes twice")
            seen.add(name)
            need = self._dtype.itemsize * value.size
            if shard and need > room:
                yield shard
                shard, room = {}, self._shard_bytes
            # Cast where it lies: half as much crosses from an accelerator to the host.
            value = np.asarray(value.astype(self._dtype, copy=False))
            shard[name] = np.ascontiguousarray(value)
            room -= need
        if shard:
            yield shard
