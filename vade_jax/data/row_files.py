"""Rows of .jsonl, .parquet and .arrow files by number; Arrow is the form that built data sets are kept in.

Arrow files are mapped into memory, not read: a row costs microseconds, and a data set larger than memory
can be trained on.
"""

import codecs
import contextlib
import json
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

Wanted = Callable[[str], bool]  # which columns are held
_FIRST = 64  # rows of a .jsonl file that say what columns there are
_OTHER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
BATCH = 64  # rows that are written or unpacked together
MAX_HELD = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2  # bytes of unpacked files
SCHEMA = pa.schema(
    [
        ("uid", pa.string()),
        ("question", pa.string()),
        ("images", pa.list_(pa.large_binary())),  # files as they came, not decoded
        ("answer", pa.string()),
        ("kind", pa.string()),
        ("choices", pa.list_(pa.string())),
        ("tolerance", pa.float64()),
        ("ordered", pa.bool_()),
        ("paraphrases", pa.list_(pa.string())),
        ("steps", pa.list_(pa.string())),
        ("subset", pa.string()),
        ("domain", pa.string()),
        ("sha256", pa.string()),  # of the question, the answer and the images
        ("num_tokens", pa.int32()),  # of the prompt, image tokens included
        ("num_patches", pa.int32()),
    ]
)


class Table(NamedTuple):
    """The rows of files of one form, one after the other.

    `columns` are all that the files have, wanted or not; of a .jsonl file those of its first rows,
    None where all of these are broken. `read` of a broken line raises ValueError.
    """

    size: int
    columns: Sequence[str] | None
    read: Callable[[int], Mapping[str, Any]]


# ------------------------------------------------------------------------------ several files
def jsonl(files: Sequence[pathlib.Path], wanted: Wanted) -> Table:
    """Holds the lines; one is decoded and parsed when it is asked for, with all its columns."""
    lines = [line for f in files for line in _lines(f, f.read_bytes()) if line.strip()]

    def read(index: int) -> Any:
        return json.loads(lines[index].decode("utf-8"))

    columns = {}  # names in the order in which they come
    for index in range(min(_FIRST, len(lines))):
        with contextlib.suppress(ValueError, RecursionError):  # no JSON, no UTF-8, or too deep
            row = read(index)
            columns |= dict.fromkeys(row if isinstance(row, dict) else ())
    return Table(len(lines), list(columns) or None, read)


def parquet(files: Sequence[pathlib.Path], wanted: Wanted) -> Table:
    """Holds the wanted columns in memory."""
    from pyarrow import parquet

    try:
        columns = parquet.read_schema(files[0]).names
        names = list(filter(wanted, columns))
        for file in files[1:]:
            others = set(filter(wanted, parquet.read_schema(file).names))
            if differ := sorted(others ^ set(names)):
                raise ValueError(
                    f"{file} and {files[0]} differ in the columns {differ}: write all files with the same"
                )
        held = pa.total_allocated_bytes()
        parts = [_unpacked(parquet.ParquetFile(file), file, names, held) for file in files]
        rows = pa.concat_tables(parts)
        return Table(len(rows), columns, row_of(rows))
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{files[0]} and its like cannot be read: {error}") from error


def _unpacked(file: Any, path: pathlib.Path, names: Sequence[str], held: int) -> pa.Table:
    """Returns columns of a parquet file, a few rows at a time: some kilobytes may hold terabytes.

    `held` are the bytes of before the first file: all of a source have one budget.
    """
    batches = []
    for batch in file.iter_batches(BATCH, columns=names):
        batches.append(batch)
        if pa.total_allocated_bytes() - held > MAX_HELD:
            raise ValueError(
                f"{path} (with the files before it) unpacks to more than {MAX_HELD >> 30} GB, half of "
                "this machine's memory: write them as .arrow, which is not held in memory"
            )
    return pa.Table.from_batches(batches) if batches else file.read(columns=names)


def arrow(files: Sequence[pathlib.Path], wanted: Wanted) -> Table:
    """Maps the files into memory."""
    parts = [open_arrow(file) for file in files]
    try:
        whole = pa.concat_tables(parts)
    except pa.ArrowException as error:
        raise ValueError(f"{files[0]} and its like differ: {error}") from error
    return of_table(whole, wanted)


def of_table(table: pa.Table, wanted: Wanted) -> Table:
    """Holds a table's wanted columns."""
    columns = table.column_names
    return Table(len(table), columns, row_of(table.select(list(filter(wanted, columns)))))


def row_of(rows: pa.Table) -> Callable[[int], dict[str, Any]]:
    """Returns the function from a number to that row; no other row is made a Python object.

    A number of two or four bytes becomes the shortest decimal that it is the nearest to: 45.67 of a
    float32 column is 45.67, and not the 45.66999816894531 that all its bits say.
    """
    whole = _shortened(pa.struct(rows.schema))

    def read(index: int) -> dict[str, Any]:
        row = rows.slice(index, 1).to_pylist()[0]
        return row if whole is None else whole(row)

    return read


def _shortened(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Returns what shortens the numbers in a value of this type; None: it has none to shorten."""
    types, change = pa.types, None
    if types.is_float16(kind) or types.is_float32(kind):
        number = np.float16 if types.is_float16(kind) else np.float32
        change = lambda value: float(str(number(value)))
    elif types.is_struct(kind):
        fields = {field.name: _shortened(field.type) for field in kind}
        fields = {name: one for name, one in fields.items() if one is not None}
        if fields:
            change = lambda value: value | {name: one(value[name]) for name, one in fields.items()}
    elif types.is_map(kind):
        key, item = (_shortened(one) or _same for one in (kind.key_type, kind.item_type))
        if (key, item) != (_same, _same):
            change = lambda value: [(key(a), item(b)) for a, b in value]
    elif types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _shortened(kind.value_type)
    elif isinstance(kind, pa.BaseExtensionType):
        return _shortened(kind.storage_type)
    elif types.is_nested(kind) and not types.is_union(kind):  # every sort of list
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
        ValueError: names the first line that is no JSON, or has half of a surrogate pair in a text. Or the
            file is no such lines at all, see `_lines`.
    """
    values = []
    for number, line in enumerate(_lines(path, path.read_bytes()), 1):
        if not line.strip():
            continue
        try:
            values.append(json.loads(line.decode("utf-8")))
            # A lone surrogate, which JSON can write as \ud83d, fails here and not in a tokenizer.
            json.dumps(values[-1], ensure_ascii=False).encode()
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return values


def _lines(path: pathlib.Path, file: bytes) -> list[bytes]:
    """Returns the lines of a file, without the mark that some editors put before the first.

    Raises:
        ValueError: it is UTF-16 or UTF-32, or JSON over several lines: one array, or one object.
    """
    if file.startswith(_OTHER_MARKS) or b"\0" in file[:4]:
        raise ValueError(f"{path} is not UTF-8 but UTF-16 or UTF-32: save it as UTF-8")
    file = file.removeprefix(codecs.BOM_UTF8)
    whole = file.strip()
    if whole[:1] == b"[" and whole[-1:] == b"]":
        raise ValueError(
            f"{path}: one row a line, this is an array: write each row on its own line"
        )
    if whole.partition(b"\n")[0].strip() == b"{":
        raise ValueError(f"{path}: one row a line, this is a row over several: write each on one")
    return file.split(b"\n")


def open_arrow(path: str | pathlib.Path) -> pa.Table:
    """Maps an IPC file, or an IPC stream as Hugging Face writes them, without copying it.

    Offsets and texts are looked at once, images are not: a damaged offset would end the process when
    its row is read.

    Raises:
        ValueError: it is neither, or cut off, or damaged.
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
    """Writes rows of `SCHEMA`; equal rows give equal bytes. Only a batch of rows is in memory."""
    batch = []
    with open(path, "wb") as file, pa.ipc.new_file(file, SCHEMA) as writer:
        for row in rows:
            batch.append(row)
            if len(batch) == BATCH:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
                batch = []
        if batch:
            writer.write_batch(pa.RecordBatch.from_pylist(batch, SCHEMA))
        writer.close()  # writes the footer, which must be on disk too
        file.flush()
        os.fsync(file.fileno())
