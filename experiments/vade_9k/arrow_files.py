"""Writes the data sets that are built here: Arrow files with one schema."""

import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

BATCH = 64  # rows that are written at a time
SCHEMA = pa.schema(
    [
        ("uid", pa.string()),
        ("question", pa.string()),
        ("images", pa.list_(pa.large_binary())),  # the original files, not decoded
        ("answer", pa.string()),
        ("kind", pa.string()),
        ("choices", pa.list_(pa.string())),
        ("tolerance", pa.float64()),
        ("ordered", pa.bool_()),
        ("paraphrases", pa.list_(pa.string())),
        ("steps", pa.list_(pa.string())),
        ("subset", pa.string()),
        ("domain", pa.string()),
        ("level", pa.string()),
        ("sha256", pa.string()),  # of the question, the answer and the images
        ("num_tokens", pa.int32()),  # length of the prompt, image tokens included
        ("num_patches", pa.int32()),
    ]
)


def write(path: str | pathlib.Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes rows of `SCHEMA`. Equal rows give equal bytes, and only a batch of rows is in memory."""
    batch = []
    with open(path, "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        for row in rows:
            batch.append(row)
            if len(batch) == BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
                batch = []
        if batch:
            writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
        writer.close()  # writes the footer before the fsync below, so that it is on disk too
        file.flush()
        os.fsync(file.fileno())
