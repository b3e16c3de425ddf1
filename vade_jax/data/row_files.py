"""Opens files of rows with `datasets`, and reads single rows in constant time.

`datasets` knows formats, compression and the directories of `save_to_disk`. It caches what it has
read (HF_DATASETS_CACHE) as Arrow files that are mapped into memory. So reading a row takes microseconds, and
a data set may be larger than the memory. This file adds:

- A line of JSON stays text until its row is read. A broken line is one rejected row, and column types do not
  change values: Arrow would turn the answer "2020-01-15" into a date.
- Values of a .csv file stay texts: pandas would turn "01" into 1.
- A number of a float32 column keeps the digits that were written.
"""

import contextlib
import glob
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute

from vade_jax import lfs

# Endings of file names, and the builder of `datasets` that reads such files.
FORMATS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
    **{".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".arrow": "arrow"},
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")


class Table(NamedTuple):
    """The rows of one or more files of the same format, in order.

    Attributes:
        size: number of rows.
        columns: names of the columns; for JSON those of the first row, as far as it can be read.
        read: index -> row; raises ValueError for a broken line.
    """

    size: int
    columns: Sequence[str]
    read: Callable[[int], Mapping[str, Any]]


def format_of(file: pathlib.Path) -> str:
    """Returns the value of `FORMATS` for a file's name, or "": "json" for rows.jsonl.gz."""
    *_, inner, last = ("", "", *(suffix.lower() for suffix in file.suffixes))
    return FORMATS.get(inner if last in _COMPRESSED else last, "")


def open_files(files: Sequence[pathlib.Path]) -> Table:
    """Returns the rows of files, all of one format.

    Raises:
        ValueError: a file cannot be read or is a Git LFS pointer, or the files differ in format or columns.
    """
    kinds = sorted({format_of(file) for file in files})
    if len(kinds) > 1:
        raise ValueError(f"{files[0].parent} has {' and '.join(kinds)} files: name one of them")
    for file in files:
        lfs.refuse_pointer(file)
    with one_line(str(files[0]) + f" (one of {len(files)} files)" * (len(files) > 1)):
        match kinds[0]:
            case "json":
                return _json(files)
            case "csv" | "tsv" as kind:
                return _csv(files, "," if kind == "csv" else "\t")
            case kind:  # by itself `datasets` reads no .parquet file without rows
                options = {"batch_size": 1000} if kind == "parquet" else {}
                return of_table(_load(kind, files, **options))


def open_saved(path: pathlib.Path, split: str) -> Table:
    """Returns the rows of a data set that `save_to_disk` wrote, from the files in its state.json.

    Raises:
        ValueError: a file is missing or damaged, or there are several splits without this one.
    """
    for file in path.rglob("*.arrow"):
        lfs.refuse_pointer(file)
    with one_line(str(path)):
        import datasets

        saved = datasets.load_from_disk(str(path))
    if isinstance(saved, datasets.DatasetDict):
        if split not in saved:
            names = [str(name) for name in saved]
            raise ValueError(f"{path} has the splits {names}: name one, such as {path / names[0]}")
        saved = saved[split]
    return of_table(saved.data.table)


@contextlib.contextmanager
def one_line(label: str) -> Iterator[None]:
    """Turns errors of `datasets`, Arrow and the hub into a ValueError of one short line."""
    try:
        import datasets

        datasets.disable_progress_bars()
        datasets.logging.set_verbosity(datasets.logging.CRITICAL)
        yield
    except Exception as error:
        # `datasets` hides the cause behind "An error occurred while generating the dataset".
        is_hidden = type(error).__name__ == "DatasetGenerationError" and error.__cause__
        cause = error.__cause__ if is_hidden else error
        why = " ".join(f"{type(cause).__name__}: {cause}".split())
        raise ValueError(f"{label} cannot be read: {why:.300}") from error


def _load(builder: str, files: Sequence[pathlib.Path], **options: Any) -> pa.Table:
    """Returns the table that a builder of `datasets` makes of files, mapped into memory from its cache."""
    import datasets

    # Escaped, because `datasets` reads brackets and stars in names as patterns.
    names = [glob.escape(str(file)) for file in files]
    return datasets.load_dataset(builder, data_files=names, split="train", **options).data.table


def _json(files: Sequence[pathlib.Path]) -> Table:
    """Returns the rows of files with one row per line, or of files that are arrays of rows."""
    lines = _load("text", files, encoding="utf-8-sig").column("text")
    is_filled = compute.match_substring_regex(lines, r"\S")  # pyright: ignore[reportAttributeAccessIssue]
    rows = place = np.flatnonzero(is_filled.to_numpy())
    read = lambda index: json.loads(lines[int(place[index])].as_py())
    if len(place) and lines[int(place[0])].as_py().lstrip().startswith("["):
        texts = _load("text", files, encoding="utf-8-sig", sample_by="document").column("text")
        rows = [row for text in texts for row in json.loads(text.as_py())]
        read = rows.__getitem__
    columns = []
    with contextlib.suppress(ValueError, LookupError, TypeError, RecursionError):
        columns = list(dict(read(0)))
    return Table(len(rows), columns, read)


def _csv(files: Sequence[pathlib.Path], sep: str) -> Table:
    """Returns the rows of files with a header; every value stays a text, and an empty one is None."""
    import datasets
    import pandas

    head = pandas.read_csv(files[0], sep=sep, nrows=1, encoding="utf-8-sig")
    if not isinstance(head.index, pandas.RangeIndex):  # its first column would be left out
        raise ValueError("its first row has more values than the header has names")
    texts = datasets.Features({name: datasets.Value("string") for name in head.columns})
    options = {"keep_default_na": False, "na_values": [""], "encoding": "utf-8-sig"}
    return of_table(_load("csv", files, sep=sep, features=texts, **options))


def of_table(rows: pa.Table) -> Table:
    """Returns the rows of an Arrow table; each is converted to Python objects only when it is read.

    Images are not decoded, and a float32 is the shortest decimal that rounds to it: 45.67 and not
    45.66999816894531.
    """
    from datasets import Dataset, table

    for i, field in enumerate(rows.schema):
        if pa.types.is_float32(field.type):
            decimals = rows.column(i).cast(pa.string()).cast(pa.float64())
            rows = rows.set_column(i, field.name, decimals)
    # The metadata say which columns are images.
    plain = table.InMemoryTable(rows.replace_schema_metadata())
    read = Dataset(plain, fingerprint="rows").__getitem__
    return Table(len(rows), rows.column_names, read)
