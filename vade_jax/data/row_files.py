"""Opens files of rows with `datasets`, and reads single rows in constant time.

`datasets` knows formats, compression and the directories of its own `save_to_disk`. It keeps what it has read
in its cache (HF_DATASETS_CACHE), as Arrow files that are mapped into memory. So a row costs microseconds, and
a data set may be larger than the memory. Here is what it does not do:

- A line of JSON stays text until its row is read. One broken line is one rejected row, and no type of a
  column changes a value: Arrow would make a date of the answer "2020-01-15".
- Values of a .csv file stay texts: pandas would make 1 of "01".
- Arrow files are mapped where they lie, not copied.
- A number of a float32 column keeps the digits that were written.
"""

import contextlib
import glob
import json
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute

from vade_jax import lfs

_FIRST = 64  # first rows of a JSON file, which are read to find the columns
_SHOWN = 300  # most characters of another library's error
# What the name of a file says about its content, and how such a content begins.
FORMATS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
    **{".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".arrow": "arrow"},
}
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
_MAGIC = {b"PAR1": "parquet", b"ARROW1": "arrow"}
_NOT_UTF8 = re.compile(r"\\x[89a-f][0-9a-f]")  # a byte that is not UTF-8, as the reader writes it


class Table(NamedTuple):
    """The rows of one or more files of the same format, in order.

    Attributes:
        size: number of rows.
        columns: names of the columns. For JSON only the first rows are read for them; None if all of these
            are broken.
        read: index -> row; raises ValueError for a broken line.
    """

    size: int
    columns: Sequence[str] | None
    read: Callable[[int], Mapping[str, Any]]


# ------------------------------------------------------------------------------ opening
def format_of(file: pathlib.Path) -> str:
    """Returns a value of `FORMATS` that a file's name says, or "": "json" of rows.jsonl.gz."""
    if file.suffix in _COMPRESSED:
        inner = FORMATS.get(file.with_suffix("").suffix, "")
        return inner if inner in ("json", "csv", "tsv") else ""
    return FORMATS.get(file.suffix, "")


def open_files(files: Sequence[pathlib.Path]) -> Table:
    """Returns the rows of files, all of one format.

    Raises:
        ValueError: a file cannot be read, is a Git LFS pointer or of another format than its name says, or
            the files differ in their columns.
    """
    (kind,) = {format_of(file) for file in files}
    for file in files:
        lfs.refuse_pointer(file)
        with file.open("rb") as opened:
            head = opened.read(8)
        for other in (name for magic, name in _MAGIC.items() if head.startswith(magic)):
            if other != kind:
                raise ValueError(f"{file} is a .{other} file inside: rename it")
    match kind:
        case "json":
            return _json(files)
        case "csv" | "tsv":
            return _csv(files, "\t" if kind == "tsv" else ",")
        case "parquet":
            return _parquet(files)
        case _:
            tables = [open_arrow(file) for file in files]
            _unified(files, [table.schema for table in tables])
            return of_table(pa.concat_tables(tables, promote_options="default"))


def is_saved(path: pathlib.Path) -> bool:
    """Returns whether a directory is one of `save_to_disk`, of a data set or of several splits."""
    return any((path / name).is_file() for name in ("state.json", "dataset_dict.json"))


def saved_splits(path: pathlib.Path) -> list[str]:
    """Returns the splits in a directory of `save_to_disk`; none if it holds a single data set."""
    listing = path / "dataset_dict.json"
    return json.loads(listing.read_text())["splits"] if listing.is_file() else []


def open_saved(path: pathlib.Path) -> Table:
    """Returns the rows of a data set that `save_to_disk` wrote: of the files that its state.json names.

    Raises:
        ValueError: a file is missing or damaged.
    """
    for file in path.glob("*.arrow"):
        lfs.refuse_pointer(file)
    with one_line(str(path)):
        import datasets

        return of_table(datasets.Dataset.load_from_disk(str(path)).data.table)


def _load(builder: str, files: Sequence[pathlib.Path], **options: Any) -> pa.Table:
    """Returns what a builder of `datasets` makes of files, mapped into memory from its cache."""
    with one_line(_label(files)):
        import datasets

        # Escaped, because `datasets` takes names with brackets or stars for patterns.
        names = [glob.escape(str(file)) for file in files]
        return datasets.load_dataset(builder, data_files=names, split="train", **options).data.table


def _label(files: Sequence[pathlib.Path]) -> str:
    return str(files[0]) + f" (one of {len(files)} files)" * (len(files) > 1)


@contextlib.contextmanager
def one_line(label: str) -> Iterator[None]:
    """Turns what `datasets` and Arrow raise into a ValueError of one short line."""
    try:
        with silent():
            yield
    except ImportError as error:
        raise ValueError(
            f"{label}: reading rows needs pip install -e '.[train]' ({error})"
        ) from error
    except Exception as error:
        # `datasets` hides the cause behind "An error occurred while generating the dataset".
        is_hidden = type(error).__name__ == "DatasetGenerationError" and error.__cause__
        cause = error.__cause__ if is_hidden else error
        why = " ".join(f"{type(cause).__name__}: {cause}".split())
        raise ValueError(f"{label} cannot be read: {why:.{_SHOWN}}") from error


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Switches off the progress bars and messages of `datasets`."""
    import datasets

    level, has_bars = datasets.logging.get_verbosity(), datasets.is_progress_bar_enabled()
    datasets.logging.set_verbosity(datasets.logging.CRITICAL)
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        if has_bars:
            datasets.enable_progress_bars()


# ------------------------------------------------------------------------------ JSON
def _json(files: Sequence[pathlib.Path]) -> Table:
    """Returns the rows of files with a row a line, or of files that are arrays of rows."""
    # A byte that is not UTF-8 is written as \xff, which JSON does not know: its row is rejected, not changed.
    options = {"encoding": "utf-8-sig", "encoding_errors": "backslashreplace"}
    if not any(file.stat().st_size for file in files):  # which `datasets` does not read
        return Table(0, None, lambda index: {})
    lines = _load("text", files, **options).column("text")
    is_filled = compute.match_substring_regex(lines, r"\S")  # pyright: ignore[reportAttributeAccessIssue]
    place = np.flatnonzero(is_filled.to_numpy())
    if not len(place):
        return Table(0, None, lambda index: {})
    first, last = (lines[int(i)].as_py().strip() for i in (place[0], place[-1]))
    if "\0" in first:
        raise ValueError(f"{files[0]} is not UTF-8 but UTF-16 or UTF-32: save it as UTF-8")
    if first == "{":
        raise ValueError(f"{files[0]} has an object over several lines: write one row a line")
    if first.startswith("[") and last.endswith("]"):
        texts = _load("text", files, sample_by="document", **options).column("text")
        rows = [row for file, text in zip(files, texts, strict=True) for row in _array(file, text)]
        read = rows.__getitem__
    else:
        read = lambda index: _parsed(lines[int(place[index])].as_py())
        rows = place
    columns = {}  # an ordered set of names
    for index in range(min(_FIRST, len(rows))):
        with contextlib.suppress(ValueError, RecursionError):  # not JSON, or too deep
            row = read(index)
            columns |= dict.fromkeys(row if isinstance(row, dict) else ())
    return Table(len(rows), list(columns) or None, read)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        if _NOT_UTF8.search(line):
            raise ValueError("it is not UTF-8: save the file as UTF-8") from error
        raise


def _array(file: pathlib.Path, text: pa.StringScalar) -> list[Any]:
    try:
        return json.loads(text.as_py())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not an array of rows: {error!s:.200}") from error


def _csv(files: Sequence[pathlib.Path], sep: str) -> Table:
    """Returns the rows of files with a header; every value stays a text, and an empty one is None."""
    import datasets
    import pandas

    with one_line(_label(files)):
        head = pandas.read_csv(files[0], sep=sep, nrows=1, encoding="utf-8-sig")
        if not isinstance(head.index, pandas.RangeIndex):  # its first column would be left out
            raise ValueError("its first row has more values than the header has names")
        texts = datasets.Features({name: datasets.Value("string") for name in head.columns})
    options = {"keep_default_na": False, "na_values": [""], "encoding": "utf-8-sig"}
    return of_table(_load("csv", files, sep=sep, features=texts, **options))


def json_lines(path: pathlib.Path) -> list[Any]:
    """Returns the value of every line that is not blank, for files of which no row may be left out.

    Raises:
        ValueError: a line is not JSON, or holds half of a surrogate pair; the message has its number.
    """
    values = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                if text := line.decode("utf-8-sig").strip():
                    values.append(json.loads(text))
                    json.dumps(values[-1], ensure_ascii=False).encode()
            except ValueError as error:
                raise ValueError(f"line {number}: {error!s:.{_SHOWN}}") from error
    return values


# ------------------------------------------------------------------------------ Arrow
def _parquet(files: Sequence[pathlib.Path]) -> Table:
    """Returns the rows of files, of which one may leave a column empty or out."""
    from pyarrow import parquet

    with one_line(_label(files)):
        sizes = [parquet.read_metadata(file).num_rows for file in files]
        schemas = [parquet.read_schema(file) for file in files]
    schema, options = _unified(files, schemas), {}
    filled = [file for file, size in zip(files, sizes, strict=True) if size]
    if not filled:  # which `datasets` does not read
        return of_table(schema.empty_table())
    if (
        schema != schemas[0]
    ):  # `datasets` takes the types of the first file, null for an empty column
        import datasets

        options = {"features": datasets.Features.from_arrow_schema(schema)}
    return of_table(_load("parquet", filled, **options))


def _unified(files: Sequence[pathlib.Path], schemas: Sequence[pa.Schema]) -> pa.Schema:
    """Returns the schema of all files; raises ValueError if two have different types for one column."""
    schema = schemas[0]
    for file, of_file in zip(files, schemas, strict=True):
        names = of_file.names
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{file} has the column {twice[0]!r} twice: rename or drop one")
        try:
            schema = pa.unify_schemas([schema, of_file])
        except pa.ArrowException as error:
            why = " ".join(str(error).split())
            raise ValueError(
                f"{file} and the files before it differ ({why:.{_SHOWN}}): write one type a column"
            ) from error
    return schema


def open_arrow(path: str | pathlib.Path) -> pa.Table:
    """Maps an Arrow IPC file, or an IPC stream as Hugging Face writes them, without copying it.

    It checks offsets and texts once, but not the content of images. A damaged offset would otherwise crash
    the process when its row is read.

    Raises:
        ValueError: the file has neither format, or is cut off or damaged.
    """
    try:
        mapped = pa.memory_map(str(path))
        try:
            table = pa.ipc.open_file(mapped).read_all()
        except pa.ArrowInvalid:
            mapped.seek(0)
            table = pa.ipc.open_stream(mapped).read_all()
        table.validate(full=True)
        return table
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} cannot be read as Arrow: {error!s:.{_SHOWN}}") from error


def of_table(table: pa.Table) -> Table:
    """Returns the rows of an Arrow table."""
    return Table(len(table), table.column_names, row_of(table))


def row_of(rows: pa.Table) -> Callable[[int], dict[str, Any]]:
    """Returns a function from an index to that row, which converts no other row to Python objects.

    A number of a float16 or float32 column becomes the shortest decimal that rounds to it: 45.67 in a
    float32 column is read as 45.67, not as 45.66999816894531.
    """
    from datasets import table

    convert = _converted(pa.struct(rows.schema)) or _same
    indexed = table.InMemoryTable(rows)  # a slice of Arrow's own goes through all of its batches
    return lambda index: convert(indexed.fast_slice(index, 1).to_pylist()[0])


def _converted(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Returns a function that shortens numbers and parses JSON in a value; None for a type without."""
    types, change = pa.types, None
    if types.is_float16(kind) or types.is_float32(kind):
        number = np.float16 if types.is_float16(kind) else np.float32
        change = lambda value: float(str(number(value)))
    elif types.is_struct(kind):
        fields = {field.name: _converted(field.type) for field in kind}
        fields = {name: one for name, one in fields.items() if one is not None}
        if fields:
            change = lambda value: value | {name: one(value[name]) for name, one in fields.items()}
    elif types.is_map(kind):  # a list of (key, value) in Python
        key, item = (_converted(one) or _same for one in (kind.key_type, kind.item_type))
        if (key, item) != (_same, _same):
            change = lambda value: [(key(a), item(b)) for a, b in value]
    elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _converted(kind.value_type)
    elif isinstance(kind, pa.JsonType):  # how `datasets` keeps values of several types
        change = json.loads
    elif isinstance(kind, pa.BaseExtensionType):
        return _converted(kind.storage_type)
    elif types.is_nested(kind) and not types.is_union(kind):  # all kinds of lists
        one = _converted(kind.field(0).type)
        if one is not None:
            change = lambda value: [one(x) for x in value]
    return change and (lambda value: None if value is None else change(value))


def _same(value: Any) -> Any:
    return value
