"""Rows written, mapped and read again, also from several threads."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from experiments.vade_9k import arrow_files
from vade_jax.data import loading, row_files, sources


def row(number):
    text = {
        "uid": f"u{number:04}",
        "question": f"How many are {number}?",
        "kind": "int",
    }
    image = bytes([number % 256]) * 50_000
    return text | {"answer": str(number), "images": [image, b"x"], "steps": ["a"]}


def test_rows_come_back_and_batches_do_not_matter(tmp_path):
    path, size = tmp_path / "a.arrow", 2 * arrow_files.BATCH + 3
    arrow_files.write(path, (row(i) for i in range(size)))
    table = row_files.open_arrow(path)
    assert table.schema == arrow_files.SCHEMA and len(table) == size
    again = table.to_pylist()
    empty = dict.fromkeys(arrow_files.SCHEMA.names)
    assert again == [empty | row(i) for i in range(size)]


def test_a_file_is_mapped_not_read(tmp_path):
    path = tmp_path / "a.arrow"
    arrow_files.write(path, (row(i) for i in range(400)))  # 20 MB
    before = pa.total_allocated_bytes()
    source = sources.rows(path)
    assert source.row(399)["answer"] == "399"
    assert pa.total_allocated_bytes() - before < 1_000_000


def test_threads_read_the_rows_that_one_reads(tmp_path):
    path = tmp_path / "a.arrow"
    arrow_files.write(path, (row(i) for i in range(300)))
    source = sources.rows(path)
    with loading.Threads(4) as pool:
        assert pool.map(source.row, range(300)) == [source.row(i) for i in range(300)]


def test_what_is_no_arrow_file_is_refused(tmp_path):
    path = tmp_path / "a.arrow"
    arrow_files.write(path, [row(1)])
    (tmp_path / "cut.arrow").write_bytes(path.read_bytes()[:-50_000])
    for name in ("cut.arrow", "none.arrow"):
        with pytest.raises(ValueError, match=f"{name} cannot be read as Arrow"):
            row_files.open_arrow(tmp_path / name)
    other = pa.table({"question": ["q"]})
    with pa.ipc.new_file(tmp_path / "b.arrow", other.schema) as writer:
        writer.write_table(other)
    with pytest.raises(ValueError, match="no column 'answer'"):
        sources.rows(tmp_path / "b.arrow")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_files_need_the_same_columns_but_one_may_leave_a_column_empty(tmp_path, suffix):
    given = {"question": ["q"], "answer": ["1"]}

    def read(*tables):
        for number, table in enumerate(tables):
            write(tmp_path / f"{number}.{suffix}", table)
        return sources.rows(tmp_path)

    levels = pa.table(given | {"level": ["hard"]}), pa.table(given | {"level": pa.nulls(1)})
    for order in (levels, levels[::-1]):
        assert {item.metadata.get("level") for item in read(*order)} == {"hard", None}
    with pytest.raises(ValueError, match=rf"1\.{suffix} and the files before it differ \(.*answer"):
        read(pa.table(given), pa.table(given | {"answer": [1]}))
    assert [item.metadata.get("level") for item in read(levels[0], pa.table(given))] == [
        "hard",
        None,
    ]
    with pytest.raises(ValueError, match=r"has the column 'answer' twice"):
        read(*[pa.table([["q"], ["1"], ["2"]], names=["question", "answer", "answer"])] * 2)


def write(path, table):
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)


def test_a_short_float_is_the_shortest_decimal_that_it_is_nearest_to():
    """As Python objects they have the digits of 64 bits: 45.66999816894531, which nobody wrote."""
    nested = pa.struct([("x", pa.list_(pa.float32())), ("n", pa.string())])
    short = {
        "single": pa.array([45.67, None], pa.float32()),
        "half": pa.array([np.float16(1.1), None], pa.float16()),
        "nested": pa.array([{"x": [0.1, None], "n": "t"}, None], nested),
        "map": pa.array([[("k", 0.3)], None], pa.map_(pa.string(), pa.float32())),
        "coded": pa.array([0.7, None], pa.float32()).dictionary_encode(),
        "double": pa.array([0.30000000000000004, None]),
    }
    read = row_files.row_of(pa.table(short))
    assert read(0) == {
        "single": 45.67,
        "half": 1.1,
        "nested": {"x": [0.1, None], "n": "t"},
        "map": [("k", 0.3)],
        "coded": 0.7,
        "double": 0.30000000000000004,
    }
    assert read(1) == dict.fromkeys(short)
