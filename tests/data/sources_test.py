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
    source = sources.rows(path, has_rules=False, keeps_rows=True)
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
    with pytest.raises(ValueError, match=r"has no files of rows by name: give a \.jsonl"):
        sources.rows(tmp_path)
    with pytest.raises(ValueError, match="no column 'answer'"):
        sources.rows(files.write_jsonl(tmp_path / "a.jsonl", {"question": "q", "ans": "1"}))
    with pytest.raises(ValueError, match="has no rows"):
        sources.rows(files.write_jsonl(tmp_path / "b.jsonl"))
    files.write_jsonl(tmp_path / "c.parquet", "")
    with pytest.raises(ValueError, match="has json and parquet files"):
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
    with pytest.raises(columns.RejectedItem, match=r"not UTF-8: save .* \[bad_row\]"):
        source[bad]
    assert {source[i].question for i in range(3) if i != bad} == {"Wie groß?"}


def test_a_broken_first_line_is_a_row_like_any_other(tmp_path):
    source = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", "5", "{}"))
    for index, reason in enumerate(("bad_row", "missing_field")):
        with pytest.raises(columns.RejectedItem, match=reason):
            source[index]


def packed(rows, suffix):
    """Returns the content of a file with these rows."""
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    match suffix:
        case "jsonl.gz":
            return gzip.compress(lines)
        case "ndjson.bz2":
            return bz2.compress(lines)
        case "json.xz":
            return lzma.compress(json.dumps(rows, indent=1).encode())
        case "json":
            return json.dumps(rows).encode()
        case "csv" | "tsv":
            sep = "," if suffix == "csv" else "\t"
            return "".join(
                sep.join(row) + "\n" for row in [rows[0], *map(dict.values, rows)]
            ).encode()
        case _:
            return zstandard.compress(lines)


@pytest.mark.parametrize(
    "suffix", ["jsonl.gz", "ndjson.bz2", "json.xz", "jsonl.zst", "json", "csv", "tsv"]
)
def test_files_are_read_in_every_usual_form_and_values_stay_as_they_are(tmp_path, suffix):
    answers = ["007", "2020-01-15", "1.50", "NA", "1e5"]
    rows = [{"question": f"q{i}", "answer": x, "kind": "text"} for i, x in enumerate(answers)]
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(packed(rows, suffix))
    (tmp_path / f".hidden.{suffix}").write_text("nothing")
    for opened in (sources.rows(path), sources.rows(tmp_path)):
        assert [item.answer for item in opened] == answers


def test_brackets_and_stars_in_a_name_are_not_a_pattern(tmp_path):
    path = files.write_jsonl(tmp_path / "a[1]*.jsonl", {"question": "q", "answer": "1"})
    assert len(sources.rows(path)) == 1


def test_a_number_is_the_one_that_was_written_next_to_any_other(tmp_path):
    values = [1, 2.50, "x", 12345678901234567890123, True]
    rows = [{"question": "q", "answer": value} for value in values]
    source = sources.rows(files.write_jsonl(tmp_path / "a.jsonl", *rows))
    answers = ["1", "2.5", "x", "12345678901234567890123", "yes"]
    assert [item.answer for item in source] == answers


def arithmetic(*numbers):
    return datasets.Dataset.from_list(
        [{"question": f"{i} + 1?", "answer": str(i + 1)} for i in numbers]
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows,
        lambda rows: rows.map(lambda row: {"question": row["question"] * 2}),
        lambda rows: rows.shuffle(seed=1),
        lambda rows: rows.filter(lambda row: row["answer"] > "3"),
    ],
    ids=["nothing", "map", "shuffle", "filter"],
)
def test_what_save_to_disk_wrote_is_read_once_whatever_was_cached_there(tmp_path, change):
    arithmetic(*range(6)).save_to_disk(tmp_path / "saved", num_shards=2)
    change(datasets.load_from_disk(tmp_path / "saved"))  # leaves cache-*.arrow
    assert [item.question for item in sources.rows(tmp_path / "saved")] == [
        f"{i} + 1?" for i in range(6)
    ]


def test_the_splits_that_save_to_disk_wrote(tmp_path):
    both = datasets.DatasetDict(train=arithmetic(1, 2), test=arithmetic(3))
    both.save_to_disk(tmp_path)
    assert len(sources.rows(tmp_path, split="train")) == 2
    assert len(sources.rows(tmp_path / "test", split="validation")) == 1
    with pytest.raises(ValueError, match=r"has the splits \['train', 'test'\]: name one, such as"):
        sources.rows(tmp_path, split="validation")
    assert sources.is_of_one_split(str(tmp_path / "test"))
    assert not sources.is_of_one_split(str(tmp_path))


@pytest.mark.parametrize("layout", ["data/{}-00000-of-00001.jsonl", "{}/metadata.jsonl"])
def test_a_copy_of_a_repository_has_its_splits_in_folders(tmp_path, layout):
    for name, size in (("train", 2), ("test", 1), ("validation", 3)):
        path = tmp_path / layout.format(name)
        path.parent.mkdir(exist_ok=True)
        files.write_jsonl(path, *[{"question": name, "answer": "1"}] * size)
    (tmp_path / "README.md").write_text("---\n---\n")
    (tmp_path / "dataset_infos.json").write_text("{}")
    for name, size in (("train", 2), ("test", 1), ("validation", 3)):
        assert [x.question for x in sources.rows(tmp_path, split=name)] == [name] * size


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:6666\nsize 147446961\n"


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        *((f"a.{suffix}", POINTER, "Git LFS pointer, not the file: git lfs pull")
          for suffix in ("jsonl", "parquet", "arrow", "csv")),
        ("a.jsonl", "PAR1\x15", r"a \.parquet file inside: rename it"),
        ("a.parquet", "ARROW1\0\0", r"a \.arrow file inside: rename it"),
        ("a.txt", "{}", "not a file of rows by name"),
        ("a.parquet.gz", "", "not a file of rows by name"),
        ("a.csv", "question,answer\n1,2\n1,2,3\n", "Expected 2 fields in line 3, saw 3"),
        ("a.csv", "question,answer\n1,2,3\n", "more values than the header has names"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_what_its_name_says_is_one_short_line(tmp_path, name, content, why):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=why) as caught:
        sources.rows(tmp_path / name)
    assert name in str(caught.value) and len(str(caught.value)) < 400


ROWS = [{"question": f"{i} + 1?", "answer": str(i + 1)} for i in range(3)]


def test_a_byte_order_mark_is_no_part_of_the_first_row(tmp_path):
    """As Windows' editors put it there; also of a later shard, and with its ends of lines."""
    for shard, ends in enumerate(("\n", "\r\n\r\n")):
        text = "".join(json.dumps(row) + ends for row in ROWS)
        (tmp_path / f"{shard}.jsonl").write_bytes(codecs.BOM_UTF8 + text.encode())
    assert [item.answer for item in sources.rows(tmp_path)] == ["1", "2", "3"] * 2


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("\n\n".join(json.dumps(row, indent=2) for row in ROWS), "an object over several lines"),
        ("[" + json.dumps(ROWS[0]) + ",]", "not an array of rows"),
        (json.dumps(ROWS[0]).encode("utf-16"), "save it as UTF-8"),
        (json.dumps(ROWS[0]).encode("utf-16-le"), "save it as UTF-8"),
        (json.dumps(ROWS[0]).encode("utf-32"), "save it as UTF-8"),
    ],
)
def test_a_file_that_has_no_row_a_line_is_one_clear_error(tmp_path, content, why):
    path = tmp_path / "a.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=rf"a\.jsonl.*{why}"):
        sources.rows(path)
