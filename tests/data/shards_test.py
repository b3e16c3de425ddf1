"""Files of each form, read by number; other splits and broken files are not trained on."""

import pytest

from tests.data import published
from vade_jax.data import shards


def rows(count, start=0):
    return [published.llava(f"r{i}", ("q", "a")) for i in range(start, start + count)]


def test_parquet_shards_by_number_in_the_order_of_the_files(tmp_path):
    for shard, (size, start) in enumerate([(5, 0), (3, 5)]):
        path = tmp_path / f"train-{shard:05}-of-00002.parquet"
        made = rows(size, start)
        published.write_parquet(path, published.LLAVA, *made, row_group_size=2)
    found = shards.open_shards(tmp_path)
    assert len(found) == 8 and found.column("id") == [f"r{i}" for i in range(8)]
    taken = [(i, where, row["id"]) for i, where, row in found.take([7, 0, 4, 3])]
    assert taken == [(i, tmp_path, f"r{i}") for i in (0, 3, 4, 7)]


@pytest.mark.parametrize("inside", ["", "train", "data"])
def test_arrow_streams_and_files_where_publishers_put_them(tmp_path, inside):
    path = tmp_path / inside / "data-00000-of-00001.arrow"
    published.write_stream(path, published.LLAVA, *rows(3))
    (tmp_path / inside / "dataset_info.json").write_text("{}")
    found = shards.open_shards(tmp_path)
    assert [row["id"] for *_, row in found.take([2, 1])] == ["r1", "r2"]


def test_only_the_training_split_is_read(tmp_path):
    for number, name in enumerate(("test-0", "train-0", "val-0")):
        path = tmp_path / f"{name}.parquet"
        published.write_parquet(path, published.LLAVA, *rows(2, 2 * number))
    assert shards.open_shards(tmp_path).column("id") == ["r2", "r3"]
    stray = tmp_path / "more.parquet"
    published.write_parquet(stray, published.LLAVA, *rows(1))
    with pytest.raises(ValueError, match=r"more\.parquet is of no split"):
        shards.open_shards(tmp_path)
    stray.unlink()
    (tmp_path / "train-0.parquet").unlink()
    with pytest.raises(ValueError, match="no training split, only test-0"):
        shards.open_shards(tmp_path)


def test_json_lists_and_lines(tmp_path):
    published.write_jsonl(tmp_path / "a.jsonl", {"x": 1}, {"x": 2, "y": 3})
    found = shards.open_shards(tmp_path)
    assert found.columns == ["x", "y"] and found.column("y") == [None, 3]
    assert [row for *_, row in found.take([0])] == [{"x": 1, "y": None}]
    (tmp_path / "train_human.json").write_text('[{"x": 5}]')
    assert len(shards.open_shards(tmp_path / "train_human.json")) == 1


def test_bad_files_are_one_clear_error(tmp_path):
    good = published.write_parquet(tmp_path / "a.parquet", published.LLAVA, *rows(4))
    cut = tmp_path / "cut" / "b.parquet"
    cut.parent.mkdir()
    cut.write_bytes(good.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"b\.parquet cannot be read"):
        shards.open_shards(cut)
    published.write_parquet(tmp_path / "b.parquet", published.EASYR1, {"answer": "1"})
    with pytest.raises(ValueError, match="need the same"):
        shards.open_shards(tmp_path)
    (tmp_path / "c.jsonl").write_text("{broken\n")
    with pytest.raises(ValueError, match="keep one form"):
        shards.open_shards(tmp_path)
    with pytest.raises(ValueError, match=r"c\.jsonl cannot be read"):
        shards.open_shards(tmp_path / "c.jsonl")
    for broken in ("{broken", r'{"question": "half a pair: \ud83d"}'):
        (tmp_path / "c.jsonl").write_text('{"question": "q"}\n\n' + broken)
        with pytest.raises(ValueError, match=r"c\.jsonl cannot be read: line 3: "):
            shards.open_shards(tmp_path / "c.jsonl")
    (tmp_path / "d.arrow").write_bytes(b"ARROW1")
    with pytest.raises(ValueError, match=r"d\.arrow cannot be read as Arrow"):
        shards.open_shards(tmp_path / "d.arrow")
    with pytest.raises(ValueError, match=r"is no \.parquet"):
        shards.open_shards(tmp_path / "nothing")
    with pytest.raises(ValueError, match="has no rows"):
        path = published.write_parquet(tmp_path / "e" / "e.parquet", published.LLAVA)
        shards.open_shards(path)
