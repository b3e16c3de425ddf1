"""Checkpoint directories as Hugging Face and vLLM know them: config.json and safetensors."""

import json
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from vade_jax import types
from vade_jax.models.qwen25vl import config, weights

CONFIG, SINGLE, INDEX = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
)
_SHARD_BYTES = 5_000_000_000


class _Tensor:
    """A tensor in a file: its shape is known at once, its values are read when used."""

    def __init__(self, file: Any, name: str):
        self._file, self._name = file, name
        self.shape = tuple(file.get_slice(name).get_shape())

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return self._file.get_tensor(self._name)


def load(
    directory: str | os.PathLike, dtype: Any = np.float32
) -> tuple[config.Config, types.Params]:
    """Returns the config and the parameters (numpy) of a Qwen2.5-VL checkpoint directory.

    Raises:
      FileNotFoundError: the directory, config.json or a weight file is missing.
      ValueError: another architecture, a damaged file, or tensors that do not fit.
    """
    directory = pathlib.Path(directory)
    shape = load_config(directory)
    named: dict[str, _Tensor] = {}
    for path in _weight_files(directory):
        file = _open(path)
        for name in file.keys():  # noqa: SIM118 (no mapping)
            if name in named:
                raise ValueError(
                    f"{path}: {name} is also in another file of {directory}"
                )
            named[name] = _Tensor(file, name)
    try:
        return shape, weights.to_params(shape, named, dtype)
    except ValueError as error:
        raise ValueError(f"{directory}: {error}") from error


def load_config(directory: str | os.PathLike) -> config.Config:
    """Returns the config of a checkpoint directory; raises as `load` does."""
    path = pathlib.Path(directory) / CONFIG
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path.parent} is no directory: give the folder of a Qwen2.5-VL checkpoint "
            "(config.json and *.safetensors)"
        )
    try:
        return config.Config.from_hf(_read_json(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def save(
    directory: str | os.PathLike,
    shape: config.Config,
    params: types.Params,
    dtype: Any = np.float32,
    *,
    shard_bytes: int = _SHARD_BYTES,
) -> None:
    """Writes a directory that transformers and vLLM load, whole or not at all.

    Files that are already there (a tokenizer) are kept; old weights are replaced.
    """
    directory = pathlib.Path(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    fresh = pathlib.Path(
        tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent)
    )
    try:
        fresh.chmod(0o755)
        _keep_others(directory, fresh)
        _write_json(
            fresh / CONFIG, {**shape.to_hf(), "torch_dtype": np.dtype(dtype).name}
        )
        _write_shards(fresh, shape, params, np.dtype(dtype), shard_bytes)
        _replace(directory, fresh)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _weight_files(directory: pathlib.Path) -> list[pathlib.Path]:
    if (directory / INDEX).exists():
        index = _read_json(directory / INDEX).get("weight_map")
        if not isinstance(index, dict):
            raise ValueError(
                f"{directory / INDEX} has no weight_map: download it again"
            )
        paths = [directory / name for name in sorted(set(index.values()))]
    else:
        paths = [directory / SINGLE]
    if missing := [path.name for path in paths if not path.exists()]:
        raise FileNotFoundError(
            f"{directory} lacks {', '.join(missing)}: download or convert the checkpoint "
            "again (only safetensors are read)"
        )
    return paths


def _open(path: pathlib.Path) -> Any:
    try:
        return safetensors.safe_open(path, "np")
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} is damaged or cut short ({error}): download it again"
        ) from error


def _write_shards(
    directory: pathlib.Path,
    shape: config.Config,
    params: types.Params,
    dtype: np.dtype,
    shard_bytes: int,
) -> None:
    names_L = _plan(shape, dtype.itemsize, shard_bytes)
    tensors = weights.from_params(shape, params)
    weight_map: dict[str, str] = {}
    for i, names in enumerate(names_L, start=1):
        file = (
            SINGLE
            if len(names_L) == 1
            else f"model-{i:05}-of-{len(names_L):05}.safetensors"
        )
        shard = {
            name: value.astype(dtype) for name, value in _take(tensors, len(names))
        }
        safetensors.numpy.save_file(shard, directory / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(shard, file)
    if len(names_L) > 1:
        size = dtype.itemsize * sum(
            int(np.prod(size)) for _, size in weights.names_and_shapes(shape)
        )
        index = {"metadata": {"total_size": size}, "weight_map": weight_map}
        _write_json(directory / INDEX, index)


def _plan(shape: config.Config, itemsize: int, shard_bytes: int) -> list[list[str]]:
    """Returns the tensors of each file, none larger than `shard_bytes` if it can be helped."""
    shards: list[list[str]] = [[]]
    room = shard_bytes
    for name, size in weights.names_and_shapes(shape):
        need = itemsize * int(np.prod(size))
        if shards[-1] and need > room:
            shards.append([])
            room = shard_bytes
        shards[-1].append(name)
        room -= need
    return shards


def _take(tensors: Iterator[tuple[str, np.ndarray]], count: int):
    return (next(tensors) for _ in range(count))


def _keep_others(old: pathlib.Path, new: pathlib.Path) -> None:
    ours = lambda name: name in (CONFIG, INDEX) or name.endswith(".safetensors")
    for path in old.iterdir() if old.is_dir() else []:
        if path.is_dir():
            shutil.copytree(path, new / path.name)
        elif not ours(path.name):
            shutil.copy2(path, new / path.name)


def _replace(directory: pathlib.Path, fresh: pathlib.Path) -> None:
    if not directory.exists():
        fresh.rename(directory)
        return
    aside = fresh.with_name(fresh.name + ".old")
    directory.rename(aside)
    fresh.rename(directory)
    shutil.rmtree(aside)


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: {path.parent} is no Hugging Face checkpoint"
        )
    try:
        content = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no JSON ({error}): download it again") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object: download it again")
    return content


def _write_json(path: pathlib.Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
