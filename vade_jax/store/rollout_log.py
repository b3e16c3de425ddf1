"""rollouts/step_00042.parquet: every answer of a step, with why its prompt was drawn."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from vade_jax import atomic
from vade_jax.types import Array, PathLike

Table = Mapping[str, Sequence[Any] | Array]  # columns

# Each column has a fixed type, so that many files can be read as one table.
COLUMNS = {
    "uid": pa.string(),
    "prompt": pa.string(),
    "answer": pa.string(),  # the model's text
    "extracted": pa.string(),  # the answer that the reward extracted; null if none
    "reason": pa.string(),  # reason of the verdict: ok, no_box, different, timeout, ...
    "gold": pa.string(),
    "kind": pa.string(),
    "correct": pa.float32(),  # null: no verdict
    "reward": pa.float32(),
    "length": pa.int32(),
    "finished": pa.bool_(),
    "group": pa.int32(),  # number of the group in the step, over all rounds
    "round": pa.int32(),  # round of the step, from 1
    "trained": pa.bool_(),  # whether the policy was trained on the group
    "alpha": pa.float32(),  # counts of the posterior before the step
    "beta": pa.float32(),
    "p_drawn": pa.float32(),
    "metadata": pa.string(),  # JSON
}


def path(workdir: PathLike, step: int) -> pathlib.Path:
    """Returns the path of a step's answers."""
    return pathlib.Path(workdir) / "rollouts" / f"step_{step:05d}.parquet"


def paths(workdir: PathLike) -> list[pathlib.Path]:
    """Returns the files of a run, by step."""
    return sorted((pathlib.Path(workdir) / "rollouts").glob("step_*.parquet"), key=_step)


def _step(path: pathlib.Path) -> int:
    return int(path.stem.removeprefix("step_"))


def remove_after(workdir: PathLike, step: int) -> None:
    """Removes the answers of later steps, which a resumed run generates again."""
    for later in paths(workdir):
        if _step(later) > step:
            later.unlink()


def write(path: PathLike, table: Table, groups: Table | None = None) -> None:
    """Writes one row for each answer; the file is complete or missing. Values that are not text become JSON.

    Args:
        path: the file.
        table: columns with one value for each answer.
        groups: columns with one value for each group; the column `group` of `table` assigns them to answers.
    """
    columns = {name: _column(name, values) for name, values in table.items()}
    for name, values in (groups or {}).items():
        columns[name] = _column(name, values).take(columns["group"])
    with atomic.replacing(path) as temporary:
        parquet.write_table(
            pa.table(columns),
            temporary,
            compression="zstd",
            use_dictionary=False,  # zstd compresses repeated text as well, in three quarters of the time
            write_page_checksum=True,
        )


def read(path: PathLike, names: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """Returns columns as lists: all of them, or those in `names` that the file has.

    Metadata stays a JSON string. A damaged file is pyarrow's ValueError or OSError.
    """
    with parquet.ParquetFile(path, page_checksum_verification=True) as file:
        present = file.schema_arrow.names
        some = None if names is None else [name for name in names if name in present]
        return file.read(columns=some).to_pydict()


def _column(name: str, values: Sequence[Any] | Array) -> pa.Array:
    kind = COLUMNS.get(name)
    if kind == pa.string():
        texts = (x if isinstance(x, str | None) else json.dumps(x, default=str) for x in values)
        values = [x and x.encode(errors="replace").decode() for x in texts]  # lone surrogates
    values = np.asarray(values) if hasattr(values, "dtype") else list(values)
    return pa.array(values, kind, from_pandas=True)  # NaN is null
