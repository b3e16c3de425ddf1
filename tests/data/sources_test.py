"""A user's own rows: files, shards, splits, and what is wrong with them."""

import codecs
import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.data import files
from vade_jax.data import columns, row_files, sources


def test_jsonl_rows_with_images_beside_the_file(tmp_path):
    (tmp_path / "a.png").write_bytes(files.png())
    path = files.write_jsonl(
        tmp_path / "mine.jsonl",
        {"problem": "How many?", "answer": 3, "images": ["a.png"], "id": 17},
        {"question": "Red?", "answer": True, "image": "a.png", "choices": None},
    )
    source = sources.rows(path)
    assert len(source) == 2
    first, second = source[0], source[1]
    assert (first.uid, first.answer, first.kind) == ("17", "3", "int")
    assert first.images[0].size == (30, 40)
    assert (second.uid, second.answer, second.kind) == ("mine:1", "yes", "yesno")
    assert sources.rows(tmp_path)[1].question == "Red?"
    with pytest.raises(IndexError):
        source[2]


def test_parquet_shards_with_bytes_in_structs(tmp_path):
    for shard in range(2):
        row = {"question": f"q{shard}", "answer": "0.5", "other": 1}
        row["images"] = [{"bytes": files.png(), "path": None}]
        parquet.write_table(pa.Table.from_pylist([row]), tmp_path / f"{shard}.parquet")
    source = sources.rows(tmp_path)
    assert [source[i].question for i in range(len(source))] == ["q0", "q1"]
    assert source[1].kind == "float" and source[1].images[0].size == (30, 40)
    del row["images"]
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "2.parquet")
    with pytest.raises(
        ValueError, match=r"2.parquet and .*0.parquet differ in the columns \['images'\]"
    ):
        sources.rows(tmp_path)
    (tmp_path / "2.parquet").write_bytes(b"PAR1 broken")
    with pytest.raises(ValueError, match="cannot be read"):
        sources.rows(tmp_path)


def test_the_splits_of_a_directory_are_told_apart_by_name(tmp_path):
    """As verl's scripts write them; what cannot be told apart is asked for."""
    for name, size in (("train", 3), ("test", 2)):
        rows = [{"question": name, "answer": "1"}] * size
        files.write_jsonl(tmp_path / f"{name}.jsonl", *rows)
    assert len(sources.rows(tmp_path, split="train")) == 3
    with pytest.raises(ValueError, match=r"holds test\.jsonl, train\.jsonl: name one of them"):
        sources.rows(tmp_path, split="validation")
    (tmp_path / "test.jsonl").rename(tmp_path / "val-0.jsonl")
    assert len(sources.rows(tmp_path, split="validation")) == 2
    files.write_jsonl(tmp_path / "more.jsonl", *rows)
    with pytest.raises(
        ValueError, match=r"holds more\.jsonl, train\.jsonl, val-0\.jsonl: name one"
    ):
        sources.rows(tmp_path, split="train")


def test_a_split_at_the_end_of_a_name_tells_too(tmp_path):
    for name, size in (("geo_train", 3), ("geo_test", 2), ("latest", 1)):
        rows = [{"question": name, "answer": "1"}] * size
        files.write_jsonl(tmp_path / f"{name}.jsonl", *rows)
    with pytest.raises(ValueError, match=r"holds geo_test\.jsonl, geo_train\.jsonl, latest\.jsonl"):
        sources.rows(tmp_path, split="train")
    (tmp_path / "latest.jsonl").unlink()
    assert len(sources.rows(tmp_path, split="train")) == 3
    assert not sources.is_of_one_split(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "split", "is_taken"),
    [
        ("train-00000", "train", True), ("train-00000", "validation", False),
        ("train-00000", "", True), ("test", "validation", True), ("val", "train", False),
        ("rows", "validation", True), ("Training", "validation", False),
        ("Geo_EVALUATION", "train", False),
    ],
)  # fmt: skip
def test_a_directory_of_one_split_is_not_the_other(tmp_path, name, split, is_taken):
    files.write_jsonl(tmp_path / f"{name}.jsonl", {"question": "?", "answer": "1"})
    if is_taken:
        assert len(sources.rows(tmp_path, split=split)) == 1
        return
    found = "train" if "rain" in name else "validation"
    with pytest.raises(ValueError, match=rf"are called {found}, such as .*, and {split} was asked"):
        sources.rows(tmp_path, split=split)


def test_without_rules_no_row_needs_an_answer_and_all_columns_are_kept(tmp_path):
    rows = [{"question": "Describe it.", "style": "terse"}, {"question": "x^2?", "answer": "x^2"}]
    path = files.write_jsonl(tmp_path / "mine.jsonl", *rows)
    source = sources.rows(path, has_rules=False, keeps_rows=True, all_columns=True)
    assert [(x.answer, x.kind, x.columns) for x in (source[0], source[1])] == [
        ("", "", rows[0]),
        ("x^2", "", rows[1]),
    ]
    assert sources.rows(path, has_rules=False)[0].columns == {}
    with pytest.raises(columns.RejectedItem, match="the row has no answer"):
        sources.rows(path)[0]


def test_bad_files_are_one_clear_error(tmp_path):
    with pytest.raises(ValueError, match=r"does not exist: give a \.jsonl"):
        sources.rows(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match=r"has no rows: give a \.jsonl"):
        sources.rows(tmp_path)
    with pytest.raises(ValueError, match="no column 'answer'"):
        sources.rows(files.write_jsonl(tmp_path / "a.jsonl", {"question": "q", "ans": "1"}))
    with pytest.raises(ValueError, match="has no rows"):
        sources.rows(files.write_jsonl(tmp_path / "b.jsonl"))
    files.write_jsonl(tmp_path / "c.parquet", "")
    with pytest.raises(ValueError, match=r"\['.jsonl', '.parquet'\] files"):
        sources.rows(tmp_path)
    for split in ("train", "validation"):
        (tmp_path / "built").mkdir(exist_ok=True)
        (tmp_path / "built" / f"{split}.arrow").touch()
    with pytest.raises(ValueError, match=r"train\.arrow, validation\.arrow: name"):
        sources.rows(tmp_path / "built")


@pytest.mark.parametrize("bad", [0, 1])
def test_a_line_that_is_not_utf8_is_a_bad_row_and_its_neighbours_are_not(tmp_path, bad):
    row = '{"question": "Wie groß?", "answer": "1"}'
    lines = [row.encode("latin-1" if i == bad else "utf-8") for i in range(3)]
    (tmp_path / "a.jsonl").write_bytes(b"\r\n".join(lines))
    source = sources.rows(tmp_path / "a.jsonl")
    assert len(source) == 3
    with pytest.raises(columns.RejectedItem, match=r"'utf-8' codec .* \[bad_row\]"):
        source[bad]
    assert {source[i].question for i in range(3) if i != bad} == {"Wie groß?"}


def test_a_broken_first_line_is_a_row_like_any_other(tmp_path):
    source = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", "5", "{}"))
    for index, reason in enumerate(("bad_row", "missing_field")):
        with pytest.raises(columns.RejectedItem, match=reason):
            source[index]


ROWS = [{"question": f"{i} + 1?", "answer": str(i + 1)} for i in range(3)]


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path):
    """As Windows' editors put it there; also of a later shard, and with its ends of lines."""
    for shard, ends in enumerate(("\n", "\r\n\r\n")):
        text = "".join(json.dumps(row) + ends for row in ROWS)
        (tmp_path / f"{shard}.jsonl").write_bytes(codecs.BOM_UTF8 + text.encode())
    assert [item.answer for item in sources.rows(tmp_path)] == ["1", "2", "3"] * 2
    assert row_files.json_lines(tmp_path / "1.jsonl") == ROWS


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (json.dumps(ROWS), "one row a line, this is an array"),
        (json.dumps(ROWS, indent=2), "one row a line, this is an array"),
        ("[" + ",\n".join(map(json.dumps, ROWS)) + "]\n\n", "one row a line, this is an array"),
        ("\n\n".join(json.dumps(row, indent=2) for row in ROWS), "this is a row over several"),
        (json.dumps(ROWS[0]).encode("utf-16"), "save it as UTF-8"),
        (json.dumps(ROWS[0]).encode("utf-16-le"), "save it as UTF-8"),
        (json.dumps(ROWS[0]).encode("utf-32"), "save it as UTF-8"),
    ],
)
def test_a_file_that_has_no_row_a_line_is_one_clear_error(tmp_path, content, why):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for read in (sources.rows, row_files.json_lines):
        with pytest.raises(ValueError, match=rf"a\.jsonl.*{why}"):
            read(path)
