"""rollouts/step_00042.parquet: every answer of a step, with why its prompt was drawn."""

import contextlib
import json
import os
import pathlib
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax import atomic
from vade_jax.types import Array, PathLike

Table = Mapping[str, Sequence[Any] | Array]  # columns

# Each column has a fixed type, so that many files can be read as one table.
COLUMNS = {
    "uid": "string",
    "prompt": "string",
    "answer": "string",  # the model's text
    "extracted": "string",  # the answer that the reward extracted; null if none
    "reason": "string",  # reason of the verdict: ok, no_box, different, timeout, ...
    "gold": "string",
    "kind": "string",
    "correct": "float32",  # null: no verdict
    "reward": "float32",
    "length": "int32",
    "finished": "bool",
    "group": "int32",  # number of the group in the step, over all rounds
    "round": "int32",  # round of the step, from 1
    "trained": "bool",  # whether the policy was trained on the group
    "alpha": "float32",  # counts of the posterior before the step
    "beta": "float32",
    "p_drawn": "float32",
    "metadata": "string",  # JSON
}

_CHECKSUM = b"crc32_of_columns"


def path(workdir: PathLike, step: int) -> pathlib.Path:
    """Returns the path of a step's answers."""
    return pathlib.Path(workdir) / "rollouts" / f"step_{step:05d}.parquet"


def paths(workdir: PathLike) -> list[pathlib.Path]:
    """Returns the files of a run, by step; files with other names are ignored."""
    found = (pathlib.Path(workdir) / "rollouts").glob("step_*.parquet")
    return sorted((p for p in found if re.fullmatch("step_[0-9]+", p.stem)), key=_by_step)


def _by_step(path: pathlib.Path) -> tuple[int, str]:
    return len(path.stem), path.stem  # from 100,000 on a number has six digits


def remove_after(workdir: PathLike, step: int) -> None:
    """Removes the answers of later steps, which a resumed run makes again."""
    for later in paths(workdir):
        if int(later.stem.removeprefix("step_")) > step:
            later.unlink()


def write(path: PathLike, table: Table, groups: Table | None = None) -> None:
    """Writes one row for each answer; the file is complete or missing. Mappings become JSON strings.

    Args:
        path: the file.
        table: columns with one value for each answer.
        groups: columns with one value for each group; the column `group` of `table` assigns them to answers.
    """
    import pyarrow.parquet

    for some in (table, groups or {}):
        lengths = {name: len(values) for name, values in some.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns of different lengths: {lengths}")
    columns = {name: _column(name, values) for name, values in table.items()}
    for name, values in (groups or {}).items():
        columns[name] = _column(name, values).take(columns["group"])
    with atomic.replacing(path) as temporary:
        whole = pyarrow.table(columns)
        whole = whole.replace_schema_metadata({_CHECKSUM: _sum_of_columns(whole.schema)})
        pyarrow.parquet.write_table(
            whole,
            temporary,
            compression="zstd",
            use_dictionary=False,  # zstd compresses repeated text as well, in three quarters of the time
            write_page_checksum=True,
        )


def read(path: PathLike, names: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """Returns columns as lists: all of them, or those in `names` that the file has.

    Metadata stays a JSON string.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a readable parquet file, or its checksum is wrong.
    """
    import pyarrow
    import pyarrow.parquet

    if not os.path.isfile(path):
        raise FileNotFoundError(f"no rollouts in {path}; see the folder rollouts/")
    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            present, schema = file.schema_arrow.names, file.schema_arrow
            if (schema.metadata or {}).get(_CHECKSUM) != _sum_of_columns(schema):
                raise pyarrow.ArrowInvalid(f"its columns were changed, to {', '.join(present)}")
            wanted = present if names is None else [n for n in names if n in present]
            return file.read(columns=wanted).to_pydict()
    except (pyarrow.ArrowException, ValueError, OSError) as error:
        raise ValueError(f"{path} is not a readable parquet file: {error}") from error


def _sum_of_columns(schema: Any) -> bytes:
    """Returns the checksum of names and types, which parquet's checksums of pages do not cover."""
    columns = [(field.name, str(field.type)) for field in schema]
    return str(zlib.crc32(repr(columns).encode())).encode()


def _column(name: str, values: Sequence[Any] | Array) -> Any:
    import pyarrow

    kind = COLUMNS.get(name)
    values = np.asarray(values) if hasattr(values, "dtype") else list(values)
    if kind == "string":
        with contextlib.suppress(pyarrow.ArrowException, UnicodeError):
            return pyarrow.array(values, pyarrow.string())
    if kind in ("string", None):  # values that are not text, or text that UTF-8 cannot hold
        values = [_text(value) for value in values]
    try:
        type_ = pyarrow.type_for_alias(kind) if kind else None
        return pyarrow.array(values, type_, from_pandas=True)  # NaN is null
    except pyarrow.ArrowException as error:
        raise ValueError(f"rollout column {name} is not {kind}: {error}") from error


def _text(value: Any) -> Any:
    """Returns the text with broken surrogates, which UTF-8 cannot hold, replaced by "?"."""
    if isinstance(value, Mapping):
        value = json.dumps(dict(value), ensure_ascii=False, default=str)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value
