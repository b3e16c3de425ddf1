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

# One type a column, whatever a step holds, so that many files read as one table.
COLUMNS = {
    "uid": "string",
    "prompt": "string",
    "answer": "string",  # what the model wrote
    "extracted": "string",  # what the reward read out of it; null when nothing
    "reason": "string",  # of the verdict: ok, no_box, different, timeout, ...
    "gold": "string",
    "kind": "string",
    "correct": "float32",  # null: there was no verdict
    "reward": "float32",
    "length": "int32",
    "finished": "bool",
    "group": "int32",  # of the step's, through all rounds
    "round": "int32",  # of the step, from 1
    "trained": "bool",  # whether the policy learned from the group
    "alpha": "float32",  # the posterior before the step
    "beta": "float32",
    "p_drawn": "float32",
    "metadata": "string",  # JSON
}

_CHECKSUM = b"crc32_of_columns"


def path(workdir: PathLike, step: int) -> pathlib.Path:
    """Returns where the answers of a step are kept."""
    return pathlib.Path(workdir) / "rollouts" / f"step_{step:05d}.parquet"


def paths(workdir: PathLike) -> list[pathlib.Path]:
    """Returns the files of a run, by step; a copy with another name is none of them."""
    found = (pathlib.Path(workdir) / "rollouts").glob("step_*.parquet")
    return sorted((p for p in found if re.fullmatch("step_[0-9]+", p.stem)), key=_by_step)


def _by_step(path: pathlib.Path) -> tuple[int, str]:
    return len(path.stem), path.stem  # beyond 99,999 a number has six digits


def remove_after(workdir: PathLike, step: int) -> None:
    """Removes the answers of later steps, which a resumed run makes again."""
    for later in paths(workdir):
        if int(later.stem.removeprefix("step_")) > step:
            later.unlink()


def write(path: PathLike, table: Table, groups: Table | None = None) -> None:
    """Writes a row an answer, all rows or no file. Mappings become JSON strings.

    Args:
        path: of the file.
        table: columns of equal length.
        groups: columns with one value a group; the column `group` of `table` says whose they are.
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
            use_dictionary=False,  # zstd makes as little of what is repeated, in three quarters of the time
            write_page_checksum=True,
        )


def read(path: PathLike, names: Sequence[str] | None = None) -> dict[str, list[Any]]:
    """Returns columns as lists, all of them or those of `names` that the file has.

    Metadata stays a JSON string.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not a parquet file that can be read, or another one than was written.
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
    """Returns the checksum of names and types, which parquet's own, of the pages, leave out."""
    columns = [(field.name, str(field.type)) for field in schema]
    return str(zlib.crc32(repr(columns).encode())).encode()


def subset(metadata: Mapping[str, Any]) -> str:
    """Returns what tables call an item: its family or subset, and its level; "" for none."""
    name = metadata.get("family") or metadata.get("subset", "")
    return f"{name} {metadata.get('level', '')}".strip()


def is_mixed(num_right: float, num_answers: int) -> bool:
    """Returns whether a group has right and wrong answers: only then does it teach."""
    return 0 < num_right < num_answers


def _column(name: str, values: Sequence[Any] | Array) -> Any:
    import pyarrow

    kind = COLUMNS.get(name)
    values = np.asarray(values) if hasattr(values, "dtype") else list(values)
    if kind == "string":
        with contextlib.suppress(pyarrow.ArrowException, UnicodeError):
            return pyarrow.array(values, pyarrow.string())
    if kind in ("string", None):  # what is no text yet, or none that UTF-8 can hold
        values = [_text(value) for value in values]
    try:
        type_ = pyarrow.type_for_alias(kind) if kind else None
        return pyarrow.array(values, type_, from_pandas=True)  # NaN is null
    except pyarrow.ArrowException as error:
        raise ValueError(f"rollout column {name} is not {kind}: {error}") from error


def _text(value: Any) -> Any:
    """Returns text that UTF-8 can hold; a broken surrogate becomes "?"."""
    if isinstance(value, Mapping):
        value = json.dumps(dict(value), ensure_ascii=False, default=str)
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value
