"""Arrow files on disk as tables that are mapped, not read: a row costs microseconds."""

import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

BATCH = 64  # rows that are written together
SCHEMA = pa.schema(
    [
        ("uid", pa.string()),
        ("question", pa.string()),
        ("images", pa.list_(pa.large_binary())),  # files as they came, not decoded
        ("answer", pa.string()),
        ("kind", pa.string()),
        ("choices", pa.list_(pa.string())),
        ("tolerance", pa.float64()),
        ("ordered", pa.bool_()),
        ("paraphrases", pa.list_(pa.string())),
        ("steps", pa.list_(pa.string())),
        ("subset", pa.string()),
        ("domain", pa.string()),
        ("sha256", pa.string()),  # of the question, the answer and the images
        ("num_tokens", pa.int32()),  # of the prompt, image tokens included
        ("num_patches", pa.int32()),
    ]
)


def table(path: str | pathlib.Path) -> pa.Table:
    """Returns an IPC file (or an IPC stream, as Hugging Face writes them) without copying it.

    Raises:
        ValueError: if it is neither, or is cut off.
    """
    try:
        mapped = pa.memory_map(str(path))
        try:
            return pa.ipc.open_file(mapped).read_all()
        except pa.ArrowInvalid:
            mapped.seek(0)
            return pa.ipc.open_stream(mapped).read_all()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as Arrow: {error}") from error


def write(path: str | pathlib.Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows of `SCHEMA`; equal rows give equal bytes. A batch of rows is in memory."""
    batch = []
    with open(path, "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        for row in rows:
            batch.append(row)
            if len(batch) == BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
                batch = []
        if batch:
            writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
        writer.close()
        file.flush()
        os.fsync(file.fileno())


class Spool:
    """Bytes that wait in a file for their turn to be written elsewhere.

    Args:
        path: of the file; an old one is replaced.
    """

    def __init__(self, path: str | pathlib.Path):
        self._path, self._file = pathlib.Path(path), open(path, "w+b")  # noqa: SIM115

    def put(self, data: bytes) -> tuple[int, int]:
        """Returns where `data` lies: what `get` takes."""
        start = self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        return start, len(data)

    def get(self, place: tuple[int, int]) -> bytes:
        self._file.seek(place[0])
        return self._file.read(place[1])

    def close(self) -> None:
        """Removes the file."""
        self._file.close()
        self._path.unlink()
