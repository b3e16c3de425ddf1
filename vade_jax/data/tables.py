"""Rows of .jsonl, .parquet and .arrow files by number."""

import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from vade_jax.data import arrow

Wanted = Callable[[str], bool]  # which columns are held


class Table(NamedTuple):
    """The rows of files of one form, one behind the other.

    `columns` are all that the files have, wanted or not; None where the first line of a .jsonl file
    is broken. `read` of such a line raises ValueError.
    """

    size: int
    columns: Sequence[str] | None
    read: Callable[[int], Mapping[str, Any]]


def json_lines(path: pathlib.Path) -> list[Any]:
    """Returns the value of every line that is not blank.

    Raises:
        ValueError: names the first line that is no JSON, or has half of a surrogate pair in a text.
    """
    lines = enumerate(path.read_text("utf-8").split("\n"), 1)
    return [_json_line(number, line) for number, line in lines if line.strip()]


def _json_line(number: int, line: str) -> Any:
    try:
        value = json.loads(line)
        json.dumps(value, ensure_ascii=False).encode()  # such as \ud83d alone
        return value
    except ValueError as error:
        raise ValueError(f"line {number}: {error}") from error


def jsonl(files: Sequence[pathlib.Path], wanted: Wanted) -> Table:
    """Holds the lines; one is parsed when it is asked for, with all that it has."""
    text = "".join(f.read_text("utf-8", errors="replace") + "\n" for f in files)
    lines = [line for line in text.split("\n") if line.strip()]
    try:
        first = json.loads(lines[0]) if lines else None
    except json.JSONDecodeError:
        first = None
    columns = list(first) if isinstance(first, dict) else None
    return Table(len(lines), columns, lambda index: json.loads(lines[index]))


def parquet(files: Sequence[pathlib.Path], wanted: Wanted) -> Table:
    """Holds the wanted columns in memory."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        columns = parquet.read_schema(files[0]).names
        names = list(filter(wanted, columns))
        parts = [parquet.read_table(file, columns=names) for file in files]
        return _table(columns, pa.concat_tables(parts))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{files[0]} and its like cannot be read: {error}") from error


def mapped(files: Sequence[pathlib.Path], wanted: Wanted) -> Table:
    """Maps .arrow files into memory."""
    import pyarrow as pa

    parts = [arrow.table(file) for file in files]
    try:
        whole = pa.concat_tables(parts)
    except pa.ArrowException as error:
        raise ValueError(f"{files[0]} and its like differ: {error}") from error
    columns = whole.column_names
    return _table(columns, whole.select(list(filter(wanted, columns))))


def _table(columns: Sequence[str], rows: Any) -> Table:
    return Table(len(rows), columns, lambda index: rows.slice(index, 1).to_pylist()[0])


OPEN = {".jsonl": jsonl, ".parquet": parquet, ".arrow": mapped}
