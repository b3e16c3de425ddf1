"""The rows of a benchmark's files, checked: a missing or odd value names file, row and column.

A score over fewer items is another score. So nothing is dropped: bad rows are gathered and reported
in one error, with their number.
"""

import dataclasses
import io
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from PIL import Image

from vade_jax import types
from vade_jax.data import images, tables

_SHARD = re.compile(r"-\d{5}-of-\d{5}.*")
_MOST_SHOWN = 5


class BadRow(ValueError):  # noqa: N818 (a verdict on data more than an error)
    """A row that does not have the published form."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One row, numbered over all shards: `row[column]` is its value, None if null or absent."""

    file: pathlib.Path
    index: int
    values: Mapping[str, Any]

    def __getitem__(self, column: str) -> Any:
        return self.values.get(column)

    def bad(self, column: str, problem: str) -> BadRow:
        return BadRow(f"{self.file.name}, row {self.index}, column {column}: {problem}")

    def text(self, column: str, *, may_be_empty: bool = False) -> str:
        """Returns a text (a number is written out), by default one with content."""
        value = "" if may_be_empty and self[column] is None else self[column]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise self.bad(column, f"{value!r} is no text")
        if not may_be_empty and not str(value).strip():
            raise self.bad(column, "is empty; splits with hidden answers do not do")
        return str(value)

    def texts(self, column: str) -> tuple[str, ...]:
        """Returns a list of texts, () for null."""
        value = [] if self[column] is None else self[column]
        if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
            raise self.bad(column, f"{value!r} is no list of texts")
        return tuple(value)

    def one_of(self, column: str, known: Sequence[Any]) -> Any:
        if self[column] not in known:
            raise self.bad(column, f"{self[column]!r} is none of {list(known)}")
        return self[column]

    def fields(self, column: str, names: Iterable[str]) -> dict[str, Any]:
        """Returns the named fields of a struct."""
        value = self[column]
        if not isinstance(value, Mapping):
            raise self.bad(column, f"{value!r} is no struct")
        if missing := [name for name in names if value.get(name) is None]:
            raise self.bad(column, f"has no field {missing[0]!r}")
        return {name: value[name] for name in names}

    def image(self, *columns: str) -> Image.Image:
        """Returns the image of the first column that has one; it has been decoded once."""
        column = next((c for c in columns if self[c] is not None), None)
        if column is None:
            raise self.bad(columns[0], "no image")
        value = self[column]
        try:
            if isinstance(value, Mapping):
                value = value.get("bytes") or value.get("path")
            if isinstance(value, str):
                value = (self.file.parent / value).read_bytes()
            Image.open(io.BytesIO(value)).load()
        except (
            Exception
        ) as error:  # decoders raise OSError, SyntaxError, struct.error, ...
            why = images.why_not(error)
            raise self.bad(column, f"the image cannot be decoded: {why}") from error
        return Image.open(io.BytesIO(value))


def items(
    path: str | pathlib.Path,
    forms: Sequence[Sequence[str]],
    build: Callable[[Row], types.Item],
) -> list[types.Item]:
    """Returns the item of every row of a .parquet, .json or .jsonl file or a directory of shards.

    Args:
      path: of the file or directory; image paths are relative to the file.
      forms: the columns of each published form; one form must be there whole.
      build: row -> item.

    Raises:
      ValueError: for files that cannot be read, a missing column, bad rows (all of them are
        counted, some are shown), or two rows with one uid.
    """
    built, problems, size = {}, [], 0
    for row in _rows(pathlib.Path(path)):
        size += 1
        try:
            _check_columns(row, forms)
            item = build(row)
        except BadRow as error:
            problems.append(str(error))
            continue
        if item.uid in built:
            raise ValueError(
                f"{path}: row {row.index} of {row.file.name} has the id of an earlier row: "
                f"{item.uid}; remove one"
            )
        built[item.uid] = item
    if problems:
        shown = "; ".join(problems[:_MOST_SHOWN])
        more = " ..." if len(problems) > _MOST_SHOWN else ""
        raise ValueError(
            f"{path}: {len(problems)} of {size} rows are bad: {shown}{more}"
        )
    if not built:
        raise ValueError(f"{path} has no rows")
    return list(built.values())


def _check_columns(row: Row, forms: Sequence[Sequence[str]]) -> None:
    missing = [[c for c in form if c not in row.values] for form in forms]
    if nearest := min(missing, key=len):
        raise ValueError(
            f"{row.file}: row {row.index} has no column {nearest[0]!r} among "
            f"{sorted(row.values)}; it is not in the published form"
        )


def _rows(path: pathlib.Path) -> Iterator[Row]:
    files = [path]
    if path.is_dir():
        files = sorted(f for f in path.iterdir() if f.suffix in _READERS)
        splits = {_SHARD.sub("", f.stem) for f in files}
        if len(splits) > 1:
            raise ValueError(f"{path} holds several splits, {sorted(splits)}; name one")
    if not files or not all(f.is_file() and f.suffix in _READERS for f in files):
        raise ValueError(
            f"{path} is no {', '.join(_READERS)} file or directory of them"
        )
    index = 0
    for file in files:
        try:
            table = _READERS[file.suffix](file)
        except (ValueError, OSError) as error:  # pyarrow's errors are of these
            raise ValueError(f"{file} cannot be read: {error}") from error
        for values in table:
            if not isinstance(values, Mapping):
                raise ValueError(f"{file}: row {index} is no object: {values!r:.60}")
            yield Row(file, index, values)
            index += 1


def _read_parquet(file: pathlib.Path) -> Iterator[Mapping[str, Any]]:
    from pyarrow import parquet

    table = parquet.read_table(file)
    return (table.slice(i, 1).to_pylist()[0] for i in range(len(table)))


def _read_json(file: pathlib.Path) -> list[Any]:
    """Reads a list of rows, or rows by id as some benchmarks publish them."""
    value = json.loads(file.read_text("utf-8"))
    return list(value.values()) if isinstance(value, dict) else value


_READERS = {
    ".parquet": _read_parquet,
    ".json": _read_json,
    ".jsonl": tables.json_lines,
}
