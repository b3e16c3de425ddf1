"""Reads and writes checkpoint directories of Hugging Face and vLLM: config.json and safetensors.

Directories that are written here also have a checksums.json, which `check` uses.

A safetensors file consists of the header's size (8 bytes, little-endian), the header (JSON: name -> dtype,
shape and offsets after the header) and the values (https://github.com/huggingface/safetensors).
"""

import collections
import json
import os
import pathlib
import shutil
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors
from safetensors.numpy import save_file

from vade_jax import atomic, types
from vade_jax.data import images, tokens
from vade_jax.models.qwen import config, config_json, weights

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
CHECKSUMS = "checksums.json"  # {file name: CRC-32 of its content}
DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(jnp.bfloat16),
}
_SHARD_BYTES = 2_000_000_000
_SAMPLE_BYTES = 4096  # bytes of each tensor that `identity` reads
# Errors of reading JSON with values of other types than those of a checkpoint.
_ODD_VALUES = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError)


# ------------------------------------------------------------------------------ reading
def load(
    directory: str | os.PathLike,
    dtype: Any = np.float32,
    shardings: types.Params | None = None,
) -> tuple[config.Config, types.Params]:
    """Returns the config and the parameters of a checkpoint directory.

    Without `shardings` the parameters are NumPy arrays. With `shardings` (from `mesh.shardings`) they are
    `jax.Array`s that go from the files straight to their devices. Then only one tensor at a time is in
    memory in addition, in the dtype of the file (at most 1.1 GB for the 7B in bfloat16); where the mesh is
    one CPU, one parameter. Every process of the mesh must call this.

    Raises:
        FileNotFoundError: the directory, config.json or a weight file is missing.
        ValueError: another architecture, a damaged file, or tensors that do not fit the config.
    """
    directory = pathlib.Path(directory)
    shape = load_config(directory)
    named = open_tensors(directory)
    try:
        return shape, weights.to_params(shape, named, dtype, shardings)
    except ValueError as error:
        raise ValueError(f"{directory}: {error}") from error


def load_config(directory: str | os.PathLike) -> config.Config:
    """Returns the config of a checkpoint directory. Raises like `load`."""
    path = pathlib.Path(directory) / CONFIG
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path.parent} is not a directory: give the folder of a checkpoint "
            "(config.json and *.safetensors)"
        )
    try:
        shape = config_json.read(_read_json(path))
    except _ODD_VALUES as error:
        raise ValueError(f"{path}: {error!s:.500}") from error
    _check_preprocessor(path.parent, shape)
    return shape


def _check_preprocessor(directory: pathlib.Path, shape: config.Config) -> None:
    """Raises ValueError if the preprocessor's file is that of another family.

    The trainer does not read that file, but engines do. They would cut and normalise images differently.
    """
    path = directory / tokens.PREPROCESSOR
    if shape.vision is None or not path.exists():
        return
    patch = shape.vision.patch_size
    mean, std = map(list, images.PIXELS[patch])
    fields = _read_json(path)
    for name, expected in (("patch_size", patch), ("image_mean", mean), ("image_std", std)):
        if (actual := fields.get(name, expected)) != expected:
            raise ValueError(
                f"{path}: {name} is {actual}, but a {shape.family} has {expected}: take the file of the model's own "
                "checkpoint"
            )


def read_tensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns every tensor of one safetensors file as a view of the memory-mapped file.

    Only the header is read now. Values are read from disk when they are indexed.

    Raises:
        ValueError: the file is damaged or truncated, or its dtype is not in `DTYPES` (quantised).
    """
    try:
        with safetensors.safe_open(path, "np"):  # checks the header and the file's size
            pass
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} is damaged, cut short or a Git LFS pointer ({error}): download it again"
        ) from error
    # The library has checked the file. NumPy maps it, because the library would return copies.
    mapped = np.asarray(np.memmap(path, np.uint8, "r"))
    start = 8 + int(mapped[:8].view("<u8")[0])
    header = json.loads(mapped[8:start].tobytes())
    header.pop("__metadata__", None)
    named = {}
    for name, entry in header.items():
        if entry["dtype"] not in DTYPES:
            raise ValueError(
                f"{path}: {name} has type {entry['dtype']}, only {', '.join(DTYPES)} are "
                "read: give a checkpoint that is not quantised"
            )
        first, end = (start + offset for offset in entry["data_offsets"])
        values = mapped[first:end].view(DTYPES[entry["dtype"]])
        named[name] = values.reshape(entry["shape"])
    return named


def open_tensors(directory: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns every tensor of a directory by name, without reading their values. Raises like `load`."""
    directory = pathlib.Path(directory)
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} is not a directory: give the folder of a checkpoint")
    # If model.safetensors exists, an index is ignored, as in transformers: it belongs to older files that
    # model.safetensors has replaced.
    names = {SINGLE}
    if not (directory / SINGLE).is_file() and (directory / INDEX).exists():
        try:
            names = {*map(os.path.basename, _read_json(directory / INDEX)["weight_map"].values())}
        except _ODD_VALUES as error:
            raise ValueError(f"{directory / INDEX} does not name files ({error!r:.200})") from error
    paths = [directory / name for name in sorted(names)]
    if missing := [path.name for path in paths if not path.is_file()]:
        raise FileNotFoundError(
            f"{directory} lacks {', '.join(missing)}: download or convert the checkpoint "
            "again (only safetensors are read)"
        )
    return {name: tensor for path in paths for name, tensor in read_tensors(path).items()}


def _read_json(path: pathlib.Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(
            f"{path} is missing: {path.parent} is not a Hugging Face checkpoint"
        )
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON ({error}): download it again") from error


def check(directory: str | os.PathLike) -> None:
    """Checks that the files of a directory are as `save` wrote them.

    It reads all files once; 15 GB of weights take some seconds. A directory without checksums.json, which
    `save` did not write, passes.

    Raises:
        ValueError: a file is missing or has changed; the message names it and says what to do.
    """
    directory = pathlib.Path(directory)
    if not (directory / CHECKSUMS).exists():
        return
    for name, expected in _read_json(directory / CHECKSUMS).items():
        path = directory / os.path.basename(name)
        if not path.is_file() or _crc32(path) != expected:
            raise ValueError(
                f"{path} is damaged or was changed: restore it from a copy, or delete {directory} to "
                f"have it made again; if the change is yours, delete {CHECKSUMS} next to it"
            )


def identity(directory: str | os.PathLike) -> int:
    """Returns a number that distinguishes checkpoints, unless they differ only in a few bytes.

    It takes a second for 33 GB, because it reads little: config.json, checksums.json if it exists, and
    the name, dtype, shape and some bytes from the middle of each tensor. Raises like `load`.
    """
    directory = pathlib.Path(directory)
    value = 0
    for name in (CONFIG, CHECKSUMS):
        if (directory / name).exists():
            value = zlib.crc32((directory / name).read_bytes(), value)
    for name, tensor in sorted(open_tensors(directory).items()):
        values = tensor.reshape(-1)[tensor.size // 2 :][: _SAMPLE_BYTES // tensor.itemsize]
        value = zlib.crc32(f"{name} {tensor.dtype} {tensor.shape} ".encode(), value)
        value = zlib.crc32(values.tobytes(), value)
    return value


def _crc32(path: pathlib.Path) -> int:
    value = 0
    with path.open("rb") as file:
        while block := file.read(1 << 24):
            value = zlib.crc32(block, value)
    return value


# ------------------------------------------------------------------------------ writing
def save(
    directory: str | os.PathLike,
    shape: config.Config,
    params: types.Params,
    dtype: Any = np.float32,
    *,
    shard_bytes: int = _SHARD_BYTES,
    write: bool = True,
) -> None:
    """Writes a checkpoint directory for transformers and vLLM, atomically.

    Other files that the directory already has, such as a tokenizer, are kept; old weights are replaced.
    One file of weights is in the host's memory at a time.

    Args:
        directory: where to write; it may exist. If it is a link, its target is replaced.
        shape: the config.
        params: the parameters. If several processes hold them, all must call this.
        dtype: dtype of the weights in the files.
        shard_bytes: the largest size of a file of weights.
        write: True in one process. The others only help to gather the weights and may return earlier.

    Raises:
        ValueError: the parameters do not fit `shape`.
    """
    dtype = np.dtype(dtype)
    tensors = weights.from_params(shape, params, dtype)
    if not write:
        collections.deque(tensors, maxlen=0)  # runs the generator and keeps nothing
        return
    directory = pathlib.Path(os.path.realpath(directory))
    with atomic.replacing_directory(directory) as fresh:
        for path in directory.iterdir() if directory.is_dir() else []:
            if path.is_dir():
                shutil.copytree(path, fresh / path.name)
            elif not _is_replaced(path.name):
                shutil.copy2(path, fresh / path.name)
        _write_json(fresh / CONFIG, {**config_json.write(shape), "torch_dtype": dtype.name})
        _write_shards(fresh, tensors, dtype, shard_bytes)
        sums = {path.name: _crc32(path) for path in sorted(fresh.iterdir()) if path.is_file()}
        _write_json(fresh / CHECKSUMS, sums)


def copy_tokenizer(source: str | os.PathLike, directory: str | os.PathLike) -> None:
    """Copies the files of a checkpoint other than its weights: tokenizer, chat template, processor.

    Call it before `save`, which keeps these files, so that the directory appears complete.
    """
    directory = pathlib.Path(os.path.realpath(directory))  # the target of a link may not exist yet
    directory.mkdir(parents=True, exist_ok=True)
    for path in pathlib.Path(source).iterdir():
        is_model = path.name in (CONFIG, CHECKSUMS) or path.name.startswith("model")
        if path.suffix in (".json", ".jinja", ".txt") and not is_model:
            shutil.copy(path, directory / path.name)


def shards(
    tensors: Iterable[tuple[str, types.Array]], dtype: np.dtype, shard_bytes: int
) -> Iterator[dict[str, np.ndarray]]:
    """Yields the tensors in dicts of at most `shard_bytes`, or of one tensor that is larger.

    Each dict is one file. It is emptied when the next one is requested, so that only one is in memory.
    """
    shard, size = {}, 0
    for name, tensor in tensors:
        tensor = np.ascontiguousarray(tensor, dtype)
        if shard and size + tensor.nbytes > shard_bytes:
            yield shard
            shard.clear()
            size = 0
        shard[name] = tensor
        size += tensor.nbytes
    if shard:
        yield shard


def _write_shards(
    directory: pathlib.Path, tensors: Iterable[tuple[str, np.ndarray]], dtype: np.dtype, most: int
) -> None:
    files: list[list[str]] = []
    size = 0
    for shard in shards(tensors, dtype, most):
        save_file(shard, directory / str(len(files)), metadata={"format": "pt"})
        files.append(list(shard))
        size += sum(x.nbytes for x in shard.values())
    weight_map: dict[str, str] = {}
    for i, names in enumerate(files):  # file names contain the number of files
        name = SINGLE if len(files) == 1 else f"model-{i + 1:05}-of-{len(files):05}.safetensors"
        (directory / str(i)).rename(directory / name)
        weight_map |= dict.fromkeys(names, name)
    if len(files) > 1:
        index = {"metadata": {"total_size": size}, "weight_map": weight_map}
        _write_json(directory / INDEX, index)


def _is_replaced(name: str) -> bool:
    return name in (CONFIG, INDEX, CHECKSUMS) or name.endswith(".safetensors")


def _write_json(path: pathlib.Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n")
