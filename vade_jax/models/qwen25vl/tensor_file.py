"""One safetensors file: read as views of the mapped file, written as a stream of blocks.

Format: the header's size (8 bytes, little-endian), the header (JSON: name -> dtype, shape and
offsets behind the header), the values. https://github.com/huggingface/safetensors
"""

import json
import math
import os
from collections.abc import Iterator, Mapping

import jax.numpy as jnp
import numpy as np
import safetensors

DTYPES = {
    "F64": np.dtype(np.float64),
    "F32": np.dtype(np.float32),
    "F16": np.dtype(np.float16),
    "BF16": np.dtype(jnp.bfloat16),
}
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Returns every tensor as a read-only view: what is indexed is what is read from disk.

    Raises:
      ValueError: the file is damaged or cut short, or holds integers (is quantised).
    """
    try:
        with safetensors.safe_open(path, "np"):  # checks the header and the file's size
            pass
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} is damaged or cut short ({error}): download it again"
        ) from error
    mapped = np.asarray(np.memmap(path, np.uint8, "r"))
    start = 8 + int(mapped[:8].view("<u8")[0])
    header = json.loads(mapped[8:start].tobytes())
    header.pop("__metadata__", None)
    return {name: _view(path, mapped[start:], name, header[name]) for name in header}


def write(
    path: str | os.PathLike,
    sizes: Mapping[str, tuple[int, ...]],
    dtype: np.dtype,
    blocks: Iterator[np.ndarray],
) -> None:
    """Writes the tensors of these shapes, whose values are the next of `blocks`, in order."""
    header = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, size in sizes.items():
        start, end = end, end + dtype.itemsize * math.prod(size)
        offsets = {"data_offsets": [start, end]}
        header[name] = {"dtype": _NAMES[dtype], "shape": list(size)} | offsets
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        while end > 0:
            block = next(blocks).reshape(-1).view(np.uint8)
            file.write(block)
            end -= block.size


def _view(path, values, name, entry) -> np.ndarray:
    if entry["dtype"] not in DTYPES:
        raise ValueError(
            f"{path}: {name} has type {entry['dtype']}, only {', '.join(DTYPES)} are read: "
            "give a checkpoint that is not quantised"
        )
    start, end = entry["data_offsets"]
    return values[start:end].view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
