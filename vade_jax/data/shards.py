"""The rows of a published data set's local files, by number and without its other splits."""

import bisect
import itertools
import json
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from vade_jax.data import arrow, tables

_SPLIT = re.compile(r"(train|validation|valid|val|dev|testmini|test)(?![a-z])")
_INSIDE = ("", "train", "data")  # where publishers put the files of a split


class Shards:
    """Rows over files of one form; made by `open_shards`.

    Attributes:
      columns: names; those of .parquet and .arrow files are the same in every file.
      name: of where they come from, for messages.
    """

    def __init__(self, name: str, files: Sequence["_File"]):
        self.name, self._files = name, files
        self.columns = list(dict.fromkeys(c for file in files for c in file.columns))
        for file in files:
            if file.is_typed and set(file.columns) != set(self.columns):
                raise ValueError(
                    f"{file.path} has the columns {sorted(file.columns)}, "
                    f"{files[0].path.name} has {sorted(self.columns)}: the files of "
                    "one data set need the same"
                )
        self._ends = list(itertools.accumulate(file.size for file in files))

    def __len__(self) -> int:
        return self._ends[-1]

    def column(self, name: str) -> list[Any]:
        """Returns one column of all rows; nothing else is read."""
        return [value for file in self._files for value in file.column(name)]

    def take(
        self, indices: Iterable[int]
    ) -> Iterator[tuple[int, pathlib.Path, Mapping[str, Any]]]:
        """Yields (index, directory, row) in the order of the files, each part read once."""
        where = lambda index: bisect.bisect_right(self._ends, index)
        for number, group in itertools.groupby(sorted(indices), where):
            file = self._files[number]
            start = self._ends[number] - file.size
            for index, row in file.take([index - start for index in group]):
                yield start + index, file.path.parent, row


def open_shards(path: str | pathlib.Path) -> Shards:
    """Opens a file or a directory (or `train`, `data` in it) of .parquet, .arrow, .jsonl or .json.

    Where file names tell splits, only those of the training split are opened.

    Raises:
      ValueError: there is no such file, none of the training split, two forms, a file that cannot
        be read, other columns in another file, or no row.
    """
    path = pathlib.Path(path)
    files = _files(path)
    suffixes = {file.suffix for file in files}
    if len(suffixes) > 1:
        raise ValueError(f"{path} has {sorted(suffixes)} files: keep one form")
    opened = [_OPEN[file.suffix](file) for file in files]
    opened = [file for file in opened if file.size]
    if not opened:
        raise ValueError(f"{path} has no rows")
    return Shards(str(path), opened)


def _files(path: pathlib.Path) -> list[pathlib.Path]:
    if path.is_file() and path.suffix in _OPEN:
        return [path]
    for place in _INSIDE:
        if not (path / place).is_dir():
            continue
        found = [f for f in (path / place).iterdir() if _is_data(f)]
        if found:
            return _of_training(path / place, sorted(found))
    raise ValueError(f"{path} is no {', '.join(_OPEN)} file or directory of them")


def _is_data(file: pathlib.Path) -> bool:
    described = file.suffix == ".json" and not _SPLIT.match(file.stem)
    return file.suffix in _OPEN and not described  # dataset_info.json and the like


def _of_training(directory, files):
    splits = [_SPLIT.match(file.stem) for file in files]
    if not any(splits):
        return files
    if not all(splits):
        other = files[splits.index(None)].name
        raise ValueError(
            f"{directory}: {other} is of no split, other files are: is it for training? Move "
            "it, or name it train_..."
        )
    kept = [f for f, m in zip(files, splits, strict=True) if m[1] == "train"]
    if not kept:
        raise ValueError(
            f"{directory} has no training split, only {files[0].name} and the like: "
            "other splits are not trained on"
        )
    return kept


class _File:
    """One file: its columns, its size and how rows are read."""

    is_typed = True  # a missing column is a fault, not a row without a value

    def __init__(self, path: pathlib.Path, columns: Sequence[str], size: int):
        self.path, self.columns, self.size = path, columns, size

    def column(self, name: str) -> list[Any]:
        raise NotImplementedError

    def take(self, indices: list[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yields (index, row); `indices` ascend."""
        raise NotImplementedError


class _Parquet(_File):
    """Reads whole row groups, one at a time."""

    def __init__(self, path: pathlib.Path):
        from pyarrow import parquet

        self._file = _read(path, lambda: parquet.ParquetFile(path, memory_map=True))
        meta = self._file.metadata
        sizes = [meta.row_group(i).num_rows for i in range(meta.num_row_groups)]
        self._ends = list(itertools.accumulate(sizes, initial=0))
        super().__init__(path, self._file.schema_arrow.names, meta.num_rows)

    def column(self, name: str) -> list[Any]:
        read = lambda: self._file.read(columns=[name]).column(0).to_pylist()
        return _read(self.path, read)

    def take(self, indices: list[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        where = lambda index: bisect.bisect_right(self._ends, index) - 1
        for number, group in itertools.groupby(indices, where):
            read = lambda number=number: self._file.read_row_group(number)
            table, start = _read(self.path, read), self._ends[number]
            for index in group:
                yield index, table.slice(index - start, 1).to_pylist()[0]


class _Arrow(_File):
    def __init__(self, path: pathlib.Path):
        self._table = arrow.table(path)
        super().__init__(path, self._table.schema.names, len(self._table))

    def column(self, name: str) -> list[Any]:
        return self._table.column(name).to_pylist()

    def take(self, indices: list[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for index in indices:
            yield index, self._table.slice(index, 1).to_pylist()[0]


class _Json(_File):
    """A list of objects, or an object a line; the columns are those of all rows."""

    is_typed = False

    def __init__(self, path: pathlib.Path):
        rows = _read(path, lambda: _json_rows(path))
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise ValueError(f"{path}: row {number} is no object: {row!r:.60}")
        self._rows = rows
        names = dict.fromkeys(name for row in rows for name in row)
        super().__init__(path, list(names), len(rows))

    def column(self, name: str) -> list[Any]:
        return [row.get(name) for row in self._rows]

    def take(self, indices: list[int]) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for index in indices:
            yield index, {name: self._rows[index].get(name) for name in self.columns}


def _json_rows(path: pathlib.Path) -> list[Any]:
    if path.suffix == ".jsonl":
        return tables.json_lines(path)
    rows = json.loads(path.read_text("utf-8"))
    return rows if isinstance(rows, list) else [rows]


def _read(path: pathlib.Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except (ValueError, OSError) as error:  # pyarrow's and json's are of these
        raise ValueError(f"{path} cannot be read: {error}") from error


_OPEN = {".parquet": _Parquet, ".arrow": _Arrow, ".jsonl": _Json, ".json": _Json}
