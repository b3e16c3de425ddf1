"""Checkpoint directories as Hugging Face and vLLM know them: config.json and safetensors."""

import collections
import json
import math
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from vade_jax import types
from vade_jax.models.qwen25vl import config, tensor_file, weights

CONFIG, SINGLE, INDEX = (
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
)
_SHARD_BYTES = 5_000_000_000


def load(
    directory: str | os.PathLike,
    dtype: Any = np.float32,
    shardings: types.Params | None = None,
) -> tuple[config.Config, types.Params]:
    """Returns the config and the parameters of a Qwen2.5-VL checkpoint directory.

    They are NumPy arrays, or, with `shardings` (of `mesh.shardings`), `jax.Array`s that go from the
    files straight to their devices: beside them one tensor, as the file has it, is in memory (1.1 GB
    at most of the 7B in bfloat16). Every process of the mesh calls this.

    Raises:
      FileNotFoundError: the directory, config.json or a weight file is missing.
      ValueError: another architecture, a damaged file, or tensors that do not fit.
    """
    directory = pathlib.Path(directory)
    shape = load_config(directory)
    named = _tensors(directory)
    try:
        return shape, weights.to_params(shape, named, dtype, shardings)
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
    write: bool = True,
) -> None:
    """Writes a directory that transformers and vLLM load, whole or not at all.

    Files that are already there (a tokenizer) are kept; old weights are replaced. The weights
    leave their devices in pieces of 128 MB. Parameters that several processes hold: all call this, one
    with `write`; the others only take part in gathering and may return first.
    """
    stream = weights.from_params_in_blocks(shape, params, np.dtype(dtype))
    blocks = (block for _, block in stream)
    if not write:
        collections.deque(blocks, maxlen=0)
        return
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
        _write_shards(fresh, shape, blocks, np.dtype(dtype), shard_bytes)
        _replace(directory, fresh)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _tensors(directory: pathlib.Path) -> dict[str, np.ndarray]:
    """Returns every tensor of a directory by name, none of them read yet."""
    listed = _listed(directory)
    named: dict[str, np.ndarray] = {}
    for path in _weight_files(directory, listed):
        tensors = tensor_file.read(path)
        if twice := sorted(named.keys() & tensors):
            raise ValueError(
                f"{path}: {twice[0]} is also in another file of {directory}"
            )
        absent = [n for n, file in listed.items() if file == path.name]
        if absent := sorted(set(absent) - tensors.keys()):
            raise ValueError(
                f"{directory / INDEX}: {absent[0]} is not in {path.name}, as it says: "
                "download both again"
            )
        named |= tensors
    return named


def _listed(directory: pathlib.Path) -> dict[str, str]:
    """Returns the index, {tensor: file}; empty where there is none."""
    if not (directory / INDEX).exists():
        return {}
    listed = _read_json(directory / INDEX).get("weight_map")
    if not isinstance(listed, dict) or not all(map(_is_file_name, listed.values())):
        raise ValueError(
            f"{directory / INDEX} has no weight_map (tensor to file name): download it again"
        )
    return listed


def _is_file_name(name: Any) -> bool:
    return isinstance(name, str) and name == os.path.basename(name) != ""


def _weight_files(
    directory: pathlib.Path, listed: dict[str, str]
) -> list[pathlib.Path]:
    paths = [directory / name for name in sorted(set(listed.values())) or [SINGLE]]
    if missing := [path.name for path in paths if not path.exists()]:
        raise FileNotFoundError(
            f"{directory} lacks {', '.join(missing)}: download or convert the checkpoint "
            "again (only safetensors are read)"
        )
    return paths


def _write_shards(
    directory: pathlib.Path,
    shape: config.Config,
    blocks: Iterator[np.ndarray],
    dtype: np.dtype,
    shard_bytes: int,
) -> None:
    plan = _plan(shape, dtype.itemsize, shard_bytes)
    weight_map: dict[str, str] = {}
    for i, sizes in enumerate(plan, start=1):
        file = f"model-{i:05}-of-{len(plan):05}.safetensors"
        file = SINGLE if len(plan) == 1 else file
        tensor_file.write(directory / file, sizes, dtype, blocks)
        weight_map |= dict.fromkeys(sizes, file)
    if len(plan) > 1:
        values = sum(math.prod(size) for sizes in plan for size in sizes.values())
        metadata = {"total_size": dtype.itemsize * values}
        index = {"metadata": metadata, "weight_map": weight_map}
        _write_json(directory / INDEX, index)


def _plan(
    shape: config.Config, itemsize: int, shard_bytes: int
) -> list[dict[str, tuple[int, ...]]]:
    """Returns the tensors of each file, none larger than `shard_bytes` if it can be helped."""
    shards: list[dict[str, tuple[int, ...]]] = [{}]
    room = shard_bytes
    for name, size in weights.names_and_shapes(shape):
        need = itemsize * math.prod(size)
        if shards[-1] and need > room:
            shards.append({})
            room = shard_bytes
        shards[-1][name] = size
        room -= need
    return shards


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
