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

from vade_jax.models.qwen25vl import files
from vade_jax.rollout.engine import EngineFailure

SHARD_BYTES = 1_000_000_000
INDEX = "model.safetensors.index.json"
_VERSION = re.compile(r"version_(\d+)")


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
        self.path = pathlib.Path(path)
        self._dtype = np.dtype(dtype)
        self._shard_bytes = shard_bytes
        if self._dtype not in (np.dtype(np.float32), np.dtype(jnp.bfloat16)):
            raise ValueError(f"weights of dtype {self._dtype}: use float32 or bfloat16")
        self.path.mkdir(parents=True, exist_ok=True)
        self.clear()

    def write(self, tensors: Iterable[tuple[str, np.ndarray | jax.Array]], version: int) -> str:
        """Returns the directory of this version, and removes older ones.

        It is written under another name and then renamed: readers see it whole or not at all.

        Args:
            tensors: (Hugging Face name, values); one is fetched at a time.
            version: of the weights.

        Raises:
            EngineFailure: the disk is full or cannot be written.
            ValueError: a name comes twice, or there is no tensor.
        """
        fresh = pathlib.Path(tempfile.mkdtemp(prefix=".version_", dir=self.path))
        try:
            fresh.chmod(0o755)  # the engine may be another user's
            self._fill(fresh, tensors, version)
            self._replace(fresh, version)
        except OSError as error:
            raise EngineFailure(
                f"version {version} of the weights was not written to {self.path} "
                f"({error}): free space there, or choose another directory"
            ) from error
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
        return self.path_of(version)

    def path_of(self, version: int) -> str:
        """Returns the directory of a version that is there.

        Raises:
            FileNotFoundError: it was never written, or a newer one replaced it.
        """
        path = self._place(version)
        if not path.is_dir():
            kept = sorted(self._versions())
            raise FileNotFoundError(f"{path} does not exist; kept versions: {kept}")
        return str(path)

    def clear(self) -> None:
        """Removes every version, and what a crash left half-written."""
        for path in self.path.glob(".version_*"):
            shutil.rmtree(path)
        for version in self._versions():
            shutil.rmtree(self._place(version))

    def _place(self, version: int) -> pathlib.Path:
        return self.path / f"version_{version:08}"

    def _versions(self) -> list[int]:
        names = [_VERSION.fullmatch(path.name) for path in self.path.iterdir()]
        return [int(name[1]) for name in names if name]

    def _fill(self, directory, tensors, version) -> None:
        weight_map: dict[str, str] = {}
        size = 0
        for i, shard in enumerate(self._shards(tensors), start=1):
            if twice := sorted(weight_map.keys() & shard):
                raise ValueError(f"tensor {twice[0]} comes twice")
            file = f"model-{i:05}.safetensors"
            sizes = {name: value.shape for name, value in shard.items()}
            blocks = iter(shard.values())
            files.write_tensors(directory / file, sizes, self._dtype, blocks)
            weight_map |= dict.fromkeys(shard, file)
            size += sum(value.nbytes for value in shard.values())
            shard.clear()  # its memory is needed for the next one
        if not weight_map:
            raise ValueError("no tensor to write")
        metadata = {"total_size": size, "version": version}
        index = {"metadata": metadata, "weight_map": weight_map}
        (directory / INDEX).write_text(json.dumps(index, indent=2) + "\n")

    def _shards(self, tensors) -> Iterator[dict[str, np.ndarray]]:
        shard: dict[str, np.ndarray] = {}
        room = self._shard_bytes
        for name, value in tensors:
            need = self._dtype.itemsize * value.size
            if shard and need > room:
                yield shard
                shard, room = {}, self._shard_bytes
            if name in shard:
                raise ValueError(f"tensor {name} comes twice")
            # Cast where it lies: half as much crosses from an accelerator to the host.
            value = np.asarray(value.astype(self._dtype, copy=False))
            shard[name] = np.ascontiguousarray(value)
            room -= need
        if shard:
            yield shard

    def _replace(self, fresh: pathlib.Path, version: int) -> None:
        """Puts a version in its place, then removes the others.

        In this order: a crash in between leaves a version too many, which `clear` finds.
        """
        place = self._place(version)
        if place.exists():
            place.rename(fresh.with_name(fresh.name + ".old"))
        fresh.rename(place)
        for path in self.path.glob(".version_*.old"):
            shutil.rmtree(path)
        for other in self._versions():
            if other != version:
                shutil.rmtree(self._place(other))
