"""A user's own rows: files, shards, splits, and what is wrong with them."""

import bz2
import codecs
import gzip
import json
import lzma

import datasets
import pyarrow as pa
import pytest
import zstandard
from pyarrow import parquet

from tests.data import files
from vade_jax.data import columns, sources

ANSWERS = ["007", "2020-01-15", "1.50", "NA", "1e5"]
ROWS = [{"question": f"q{i}", "answer": x, "kind": "text"} for i, x in enumerate(ANSWERS)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def write(path, *rows):
    """Writes rows in the format that the name of the file says, and returns its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".arrow":
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    else:
        files.write_jsonl(path, *rows)
    return path


def asks(path, **options):
    return [item.question for item in sources.rows(path, **options)]


def test_a_function_returns_the_rows_of_a_split(tmp_path):
    code = "def rows(split):\n    return [{'question': split, 'answer': 'a'}] * 2\n"
    (tmp_path / "mine.py").write_text(code)
    rows = sources.rows(f"{tmp_path}/mine.py:rows", split="validation")
    expected = [(f"mine.rows:{i}", "validation") for i in range(2)]
    assert [(x.uid, x.question) for x in rows] == expected


# ------------------------------------------------------------------------------ files
def separated(sep):
    rows = [ROWS[0], *map(dict.values, ROWS)]
    return "".join(sep.join(row) + "\n" for row in rows).encode()


@pytest.mark.parametrize(
    ("suffix", "content"),
    [
        ("jsonl", codecs.BOM_UTF8 + LINES.replace(b"\n", b"\r\n\r\n")), ("jsonl.gz", gzip.compress(LINES)),
        ("ndjson.bz2", bz2.compress(LINES)), ("jsonl.zst", zstandard.compress(LINES)), ("json", json.dumps(ROWS).encode()),
        ("json.xz", lzma.compress(json.dumps(ROWS, indent=1).encode())), ("csv", separated(",")), ("tsv", separated("\t")),
    ],
)  # fmt: skip
def test_files_are_read_in_every_usual_form_and_values_stay_as_they_are(tmp_path, suffix, content):
    paths = [tmp_path / f"{name}.{suffix}" for name in "ab"]
    for path in paths:
        path.write_bytes(content)
    (tmp_path / f".hidden.{suffix}").write_text("nothing")
    assert [item.answer for item in sources.rows(paths[0])] == ANSWERS
    assert [item.answer for item in sources.rows(tmp_path)] == ANSWERS * 2


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "jsonl"])
def test_shards_are_read_in_order_and_one_may_leave_a_column_empty(tmp_path, suffix):
    row = {"question": "q", "answer": "0.5", "images": [{"bytes": files.png(), "path": None}]}
    row = json.loads(json.dumps(row, default=lambda x: "")) if suffix == "jsonl" else row
    write(tmp_path / f"0.{suffix}", row | {"level": "hard"})
    write(tmp_path / f"1.{suffix}", row | {"question": "r", "level": None})
    if suffix == "parquet":  # one of Spark's may have no rows
        parquet.write_table(parquet.read_table(tmp_path / "0.parquet")[:0], tmp_path / "2.parquet")
    first, second = sources.rows(tmp_path)
    assert (first.question, second.question, second.kind) == ("q", "r", "float")
    assert (first.metadata, second.metadata) == ({"level": "hard"}, {})
    assert len(second.images) == (suffix != "jsonl")
    assert sources.rows(tmp_path).row(1)["level"] is None


def test_a_number_is_the_one_that_was_written_next_to_any_other(tmp_path):
    values = [1, 2.50, "x", 12345678901234567890123, True]
    path = write(tmp_path / "a[1]*.jsonl", *({"question": "q", "answer": x} for x in values))
    answers = ["1", "2.5", "x", "12345678901234567890123", "yes"]
    assert [item.answer for item in sources.rows(path)] == answers


def test_without_rules_no_row_needs_an_answer_and_all_columns_are_kept(tmp_path):
    rows = [{"question": "Describe it.", "style": "terse"}, {"question": "x^2?", "answer": "x^2"}]
    path = write(tmp_path / "mine.jsonl", *rows)
    kept = sources.rows(path, has_rules=False, keeps_rows=True)
    assert [(x.answer, x.kind, x.columns) for x in kept] == [
        ("", "", rows[0]),
        ("x^2", "", rows[1]),
    ]
    assert sources.rows(path, has_rules=False)[0].columns == {}
    with pytest.raises(
        columns.RejectedItem, match=r"no answer, .* columns are \['question', 'style'"
    ):
        sources.rows(path)[0]


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("a.txt", b"{}", "not a file or directory of rows by name"),
        ("a.jsonl", b"[]", "has no rows"), ("a.json", b"[{},]", "cannot be read"),
        ("a.parquet", b"PAR1 broken", "cannot be read"),
        ("a.csv", b"question,answer\n1,2,3\n", "more values than the header has names"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_what_its_name_says_is_one_short_line(tmp_path, name, content, why):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=why) as caught:
        sources.rows(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value) and len(str(caught.value)) < 500


# ------------------------------------------------------------------------------ splits
@pytest.mark.parametrize(
    ("names", "kept"),  # the files, and of which of them the rows of each split are
    [
        (["rows", "more"], {"train": "more rows", "validation": "more rows", "": "more rows"}),
        (["train-00000", "train-1"], {"train": "train-00000 train-1", "": "train-00000 train-1", "validation": None}),
        (["test"], {"validation": "test", "test": "test", "train": None, "": "test"}),
        (["train", "test"], {"train": "train", "test": "test", "validation": None, "": None}),
        (["geo_train", "geo_Val", "geo-testmini"], {"train": "geo_train", "validation": "geo_Val", "test": "geo-testmini"}),
        (["train", "val-0", "latest"], {"train": None, "validation": None}),
        (["data/train/0000", "data/valid/0000"], {"validation": "data/valid/0000", "": None}),
    ],
    ids=str,
)  # fmt: skip
def test_the_splits_of_a_directory_are_told_apart_by_name(tmp_path, names, kept):
    for name in names:
        write(tmp_path / f"{name}.jsonl", {"question": name, "answer": "1"})
    (tmp_path / "README.md").write_text("---\n---\n")
    (tmp_path / "dataset_infos.json").write_text("{}")
    for split, expected in kept.items():
        if expected is None:
            match = r"holds .*\.jsonl: name one of them" + f" for {split}" * bool(split)
            with pytest.raises(ValueError, match=match):
                sources.rows(tmp_path, split=split)
        else:
            assert asks(tmp_path, split=split) == expected.split()


def test_what_save_to_disk_wrote_is_read_once_whatever_was_cached_there(tmp_path):
    datasets.Dataset.from_list(ROWS).save_to_disk(tmp_path / "saved", num_shards=2)
    saved = datasets.load_from_disk(tmp_path / "saved")
    saved.map(lambda row: {"question": row["question"] * 2})  # leaves cache-*.arrow
    assert asks(tmp_path / "saved") == [row["question"] for row in ROWS]


def test_the_splits_that_save_to_disk_wrote(tmp_path):
    train, test = (datasets.Dataset.from_list(rows) for rows in (ROWS[:2], ROWS[2:]))
    datasets.DatasetDict(train=train, test=test).save_to_disk(tmp_path)
    assert asks(tmp_path, split="train") == asks(tmp_path) == ["q0", "q1"]
    assert asks(tmp_path / "test", split="validation") == ["q2", "q3", "q4"]
    with pytest.raises(ValueError, match=r"has the splits \['train', 'test'\]: name one, such as"):
        sources.rows(tmp_path, split="validation")
