"""Reads rows of .jsonl, .parquet and .arrow files by number. Data sets that are built here are Arrow files.

Arrow files are mapped into memory and not read as a whole. So a row costs microseconds, and a data set may
be larger than the memory.
"""

import bisect
import codecs
import contextlib
import itertools
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa

Wanted = Callable[[str], bool]  # column name -> whether the column is kept
_FIRST = 64  # first rows of a .jsonl file, which are read to find the columns
_OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
BATCH = 64  # rows that are written or unpacked at a time
# Most bytes of files that are held or unpacked in memory: half of the machine's memory.
MAX_HELD = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
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


class Table(NamedTuple):
    """The rows of one or more files of the same format, in order.

    Attributes:
        size: number of rows.
        columns: names of all columns, wanted or not. For .jsonl only the first rows are read for them;
            None if all of these are broken.
        read: index -> row; raises ValueError for a broken line.
    """

    size: int
    columns: Sequence[str] | None
    read: Callable[[int], Mapping[str, Any]]


# ------------------------------------------------------------------------------ several files
def jsonl(files: Sequence[pathlib.Path], wanted: Wanted) -> Table:
    """Returns a table that holds the lines in memory; a line is parsed, with all columns, when it is read.

    Raises:
        ValueError: a file does not consist of JSON lines, or the files are too large.
    """
    if sum(file.stat().st_size for file in files) > MAX_HELD:
        raise ValueError(f"{files[0]} (with the files beside it) has {_too_large()}")
    lines = [line for file in files for line in _lines(file) if line.strip()]

    def read(index: int) -> Any:
        return json.loads(lines[index].decode("utf-8"))

    columns = {}  # an ordered set of names
    for index in range(min(_FIRST, len(lines))):
        with contextlib.suppress(ValueError, RecursionError):  # no JSON, no UTF-8, or too deep
            row = read(index)
            columns |= dict.fromkeys(row if isinstance(row, dict) else ())
    return Table(len(lines), list(columns) or None, read)


def parquet(files: Sequence[pathlib.Path], wanted: Wanted) -> Table:
    """Returns a table that holds the wanted columns in memory.

    Raises:
        ValueError: a file cannot be read or is too large, or the files differ in their wanted columns.
    """
    from pyarrow import parquet

    try:
        columns = [parquet.read_schema(file).names for file in files]
        names = _in_all(files, columns, wanted)
        held = pa.total_allocated_bytes()
        parts = [_unpacked(parquet.ParquetFile(file), file, names, held) for file in files]
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{files[0]} and its like cannot be read: {error}") from error
    rows = _joined(files, parts)
    return Table(len(rows), columns[0], row_of(rows))


def _unpacked(file: Any, path: pathlib.Path, names: Sequence[str], held: int) -> pa.Table:
    """Returns columns of a parquet file.

    It unpacks a few rows at a time and counts the memory, because a file of kilobytes may unpack to
    terabytes. All files of a table share the limit: `held` is the number of bytes that were allocated
    before the first file.
    """
    batches = []
    for batch in file.iter_batches(BATCH, columns=names):
        batches.append(batch)
        if pa.total_allocated_bytes() - held > MAX_HELD:
            raise ValueError(f"{path} (with the files before it) unpacks to {_too_large()}")
    return pa.Table.from_batches(batches) if batches else file.read(columns=names)


def arrow(files: Sequence[pathlib.Path], wanted: Wanted) -> Table:
    """Returns a table over files that are mapped into memory.

    Raises:
        ValueError: a file cannot be read, or the files differ in their wanted columns.
    """
    parts = [open_arrow(file) for file in files]
    columns = [part.column_names for part in parts]
    names = _in_all(files, columns, wanted)
    rows = _joined(files, [part.select(names) for part in parts])
    return Table(len(rows), columns[0], row_of(rows))


def _in_all(
    files: Sequence[pathlib.Path], columns: Sequence[Sequence[str]], wanted: Wanted
) -> list[str]:
    """Returns the wanted columns; raises ValueError if a file has others, or one of them twice."""
    found = [list(filter(wanted, of_file)) for of_file in columns]
    for file, names in zip(files, found, strict=True):
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"{file} has the column {twice[0]!r} twice: rename or drop one")
        if differ := sorted(set(names) ^ set(found[0])):
            raise ValueError(
                f"{file} and {files[0]} differ in the columns {differ}: write all files with the same"
            )
    return found[0]


def _joined(files: Sequence[pathlib.Path], parts: Sequence[pa.Table]) -> pa.Table:
    """Returns the rows of all files; a column that one file leaves empty has the type of the others.

    Raises:
        ValueError: two files have other types for one column.
    """
    schema = parts[0].schema
    for file, part in zip(files, parts, strict=True):
        try:
            schema = pa.unify_schemas([schema, part.schema])
        except pa.ArrowException as error:
            said = " ".join(str(error).split())
            raise ValueError(
                f"{file} and the files before it differ ({said}): write one type a column"
            ) from error
    return pa.concat_tables(parts, promote_options="default")


def _too_large() -> str:
    return (
        f"more than {MAX_HELD >> 30} GB, half of this machine's memory: write them as .arrow, which is not "
        "held in memory"
    )


def of_table(table: pa.Table, wanted: Wanted) -> Table:
    """Returns the wanted columns of an Arrow table."""
    columns = table.column_names
    return Table(len(table), columns, row_of(table.select(list(filter(wanted, columns)))))


def row_of(rows: pa.Table) -> Callable[[int], dict[str, Any]]:
    """Returns a function from an index to that row, which converts no other row to Python objects.

    A number of a float16 or float32 column becomes the shortest decimal that rounds to it: 45.67 in a
    float32 column is read as 45.67, not as 45.66999816894531.
    """
    whole = _shortened(pa.struct(rows.schema))
    # A slice of a table goes through all of its batches; a file has thousands.
    batches = [batch for batch in rows.to_batches() if len(batch)]
    ends = list(itertools.accumulate(map(len, batches)))

    def read(index: int) -> dict[str, Any]:
        number = bisect.bisect_right(ends, index)
        batch = batches[number]
        row = batch.slice(index - ends[number] + len(batch), 1).to_pylist()[0]
        return row if whole is None else whole(row)

    return read


def _shortened(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Returns a function that shortens the numbers in a value of this type; None if there are none."""
    types, change = pa.types, None
    if types.is_float16(kind) or types.is_float32(kind):
        number = np.float16 if types.is_float16(kind) else np.float32
        change = lambda value: float(str(number(value)))
    elif types.is_struct(kind):
        fields = {field.name: _shortened(field.type) for field in kind}
        fields = {name: one for name, one in fields.items() if one is not None}
        if fields:
            change = lambda value: value | {name: one(value[name]) for name, one in fields.items()}
    elif types.is_map(kind):  # a list of (key, value) in Python
        key, item = (_shortened(one) or _same for one in (kind.key_type, kind.item_type))
        if (key, item) != (_same, _same):
            change = lambda value: [(key(a), item(b)) for a, b in value]
    elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _shortened(kind.value_type)
    elif isinstance(kind, pa.BaseExtensionType):
        return _shortened(kind.storage_type)
    elif types.is_nested(kind) and not types.is_union(kind):  # all kinds of lists
        one = _shortened(kind.field(0).type)
        if one is not None:
            change = lambda value: [one(x) for x in value]
    return change and (lambda value: None if value is None else change(value))


def _same(value: Any) -> Any:
    return value


OPEN = {".jsonl": jsonl, ".parquet": parquet, ".arrow": arrow}


# ------------------------------------------------------------------------------ one file
def json_lines(path: pathlib.Path) -> list[Any]:
    """Returns the value of every line that is not blank.

    Raises:
        ValueError: a line is not JSON or contains a lone surrogate (the message has the number of the
            first such line), or the file does not consist of JSON lines, see `_lines`.
    """
    values = []
    for number, line in enumerate(_lines(path), 1):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line.decode("utf-8")))
            # Encoded so that a lone surrogate, such as JSON's \ud83d, fails here and not in a tokenizer.
            json.dumps(values[-1], ensure_ascii=False).encode()
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return values


def _lines(path: pathlib.Path) -> Iterator[bytes]:
    """Yields the lines of a file, without the byte order mark that some editors write before the first.

    Raises:
        ValueError: the file is UTF-16 or UTF-32, or it is one JSON array or a JSON object over several
            lines.
    """
    with path.open("rb") as file:
        head = file.read(4)
        if head.startswith(_OTHER_MARKS) or b"\0" in head:
            raise ValueError(f"{path} is not UTF-8 but UTF-16 or UTF-32: save it as UTF-8")
        file.seek(len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0)
        start = file.tell()
        first = next((line.strip() for line in file if line.strip()), b"")
        if first == b"{":
            raise ValueError(
                f"{path}: one row a line, this is a row over several: write each on one"
            )
        if first.startswith(b"[") and _end(file).endswith(b"]"):
            raise ValueError(
                f"{path}: one row a line, this is an array: write each row on its own line"
            )
        file.seek(start)
        yield from file


def _end(file: BinaryIO) -> bytes:
    """Returns the last bytes of a file that are no space."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 4096))
    return file.read().rstrip()


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
        raise ValueError(f"{path} cannot be read as Arrow: {error}") from error


def write_arrow(path: str | pathlib.Path, rows: Iterable[Mapping[str, Any]]) -> None:
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
