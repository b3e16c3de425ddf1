"""Files read by number without other splits and broken ones; rows of each form as questions."""

import pytest

from experiments.vade_9k import published
from tests.experiments.vade_9k import files
from vade_jax.data.columns import RejectedItem


def rows(count, start=0):
    return [files.llava(f"r{i}", ("q", "a")) for i in range(start, start + count)]


def test_parquet_shards_by_number_in_the_order_of_the_files(tmp_path):
    for shard, (size, start) in enumerate([(5, 0), (3, 5)]):
        path = tmp_path / f"train-{shard:05}-of-00002.parquet"
        made = rows(size, start)
        files.write_parquet(path, files.LLAVA, *made, row_group_size=2)
    found = published.open_shards(tmp_path)
    assert len(found) == 8 and found.column("id") == [f"r{i}" for i in range(8)]
    taken = [(i, row["id"]) for i, row in found.take([7, 0, 4, 3])]
    assert taken == [(i, f"r{i}") for i in (0, 3, 4, 7)]


@pytest.mark.parametrize("inside", ["", "train", "data"])
def test_arrow_streams_and_files_where_publishers_put_them(tmp_path, inside):
    path = tmp_path / inside / "data-00000-of-00001.arrow"
    files.write_stream(path, files.LLAVA, *rows(3))
    (tmp_path / inside / "dataset_info.json").write_text("{}")
    found = published.open_shards(tmp_path)
    assert found.directory == path.parent
    assert [row["id"] for _, row in found.take([2, 1])] == ["r1", "r2"]


def test_only_the_training_split_is_read(tmp_path):
    for number, name in enumerate(("test-0", "train-0", "val-0")):
        path = tmp_path / f"{name}.parquet"
        files.write_parquet(path, files.LLAVA, *rows(2, 2 * number))
    assert published.open_shards(tmp_path).column("id") == ["r2", "r3"]
    stray = tmp_path / "more.parquet"
    files.write_parquet(stray, files.LLAVA, *rows(1))
    with pytest.raises(ValueError, match=r"more\.parquet is of no split"):
        published.open_shards(tmp_path)
    stray.unlink()
    (tmp_path / "train-0.parquet").unlink()
    with pytest.raises(ValueError, match="no training split, only test-0"):
        published.open_shards(tmp_path)


def test_json_lists_and_lines(tmp_path):
    files.write_jsonl(tmp_path / "a.jsonl", {"x": 1}, {"x": 2, "y": 3})
    found = published.open_shards(tmp_path)
    assert found.columns == ["x", "y"] and found.column("y") == [None, 3]
    assert list(found.take([0])) == [(0, {"x": 1})]
    (tmp_path / "train_human.json").write_text('[{"x": 5}]')
    assert len(published.open_shards(tmp_path / "train_human.json")) == 1


def test_bad_files_are_one_clear_error(tmp_path):
    good = files.write_parquet(tmp_path / "a.parquet", files.LLAVA, *rows(4))
    cut = tmp_path / "cut" / "b.parquet"
    cut.parent.mkdir()
    cut.write_bytes(good.read_bytes()[:-30])
    with pytest.raises(ValueError, match=r"b\.parquet cannot be read"):
        published.open_shards(cut)
    files.write_parquet(tmp_path / "b.parquet", files.EASYR1, {"answer": "1"})
    with pytest.raises(ValueError, match="need the same"):
        published.open_shards(tmp_path)
    (tmp_path / "c.jsonl").write_text("{broken\n")
    with pytest.raises(ValueError, match="keep one form"):
        published.open_shards(tmp_path)
    with pytest.raises(ValueError, match=r"c\.jsonl cannot be read"):
        published.open_shards(tmp_path / "c.jsonl")
    for broken in ("{broken", r'{"question": "half a pair: \ud83d"}'):
        (tmp_path / "c.jsonl").write_text('{"question": "q"}\n\n' + broken)
        with pytest.raises(ValueError, match=r"c\.jsonl cannot be read: line 3: "):
            published.open_shards(tmp_path / "c.jsonl")
    (tmp_path / "d.arrow").write_bytes(b"ARROW1")
    with pytest.raises(ValueError, match=r"d\.arrow cannot be read as Arrow"):
        published.open_shards(tmp_path / "d.arrow")
    with pytest.raises(ValueError, match=r"is no \.parquet"):
        published.open_shards(tmp_path / "nothing")
    with pytest.raises(ValueError, match="has no rows"):
        path = files.write_parquet(tmp_path / "e" / "e.parquet", files.LLAVA)
        published.open_shards(path)


# ------------------------------------------------------------------------------ forms
def read(row):
    return published.detect(list(row), "a file").read(row)


def test_forms_are_told_apart_by_their_columns():
    found = {
        schema.names[i]: published.detect(schema.names, "x").name
        for schema, i in [
            *((files.LLAVA, 2), (files.CHARTQA, 1), (files.SCIENCEQA, 4)),
            *((files.VERL, 1), (files.EASYR1, 1)),
        ]
    }
    assert found == {
        **{"conversations": "LLaVA-OneVision", "query": "ChartQA", "hint": "ScienceQA"},
        **{"prompt": "verl", "problem": "rows of your own"},
    }
    columns = ["question", "answer", "choices", "image"]
    assert published.detect(columns, "x").name == "rows of your own"
    with pytest.raises(ValueError, match=r"x has the columns \['ask'\].*verl: images"):
        published.detect(["ask"], "x")


def test_turns_share_the_image_and_only_the_first_has_the_mark():
    samples = read(files.llava("a", ("One?", "Yes"), ("Two?", "No")))
    assert [(s.turn, s.question, s.answer) for s in samples] == [
        (0, "One?", "Yes"),
        (1, "Two?", "No"),
    ]
    assert samples[0].images is samples[1].images and len(samples[0].images) == 1
    assert {s.answer_is for s in samples} == {"turn"}


def test_the_original_files_of_chartqa():
    row = {"imgname": "7.png", "query": "How many?", "label": "1,200"}
    (sample,) = read(row)
    assert sample.images == ["png/7.png"] and sample.answer == "1,200"
    assert sample.tolerance == 0.05


def test_verl_leaves_the_system_turn_out():
    (sample,) = read(files.verl("<image>Find y.", "4", system=True))
    assert (sample.question, sample.answer) == ("Find y.", "4")


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (files.llava("a"), "bad_turns"),
        (files.llava("a", ("q", "a")) | {"conversations": [{"from": "gpt", "value": "a"}]}, "bad_turns"),
        (files.llava("a", ("q", "a")) | {"conversations": [{"who": "human"}]}, "bad_turns"),
        (files.llava("a", ("q<image>", "a")), "image_count"),
        (files.chartqa("q", ["1", "2"]), "several_answers"),
        (files.chartqa("q", []), "several_answers"),
        (files.chartqa("q", ""), "missing_field"),
        (files.scienceqa("q", ["a"], 0), "bad_choices"),
        (files.scienceqa("q", ["a", ""], 0), "bad_choices"),
        (files.scienceqa("q", ["a", "b"], -1), "bad_gold"),
        (files.scienceqa("q", ["a", "b"], None), "bad_gold"),
        (files.verl("q", None), "missing_field"),
        (files.verl("q", "1") | {"reward_model": None}, "missing_field"),
        (files.verl("q", "1") | {"prompt": []}, "bad_turns"),
        (files.verl("q", "1") | {"prompt": "How many?"}, "bad_row"),
        (files.verl("q", "1") | {"reward_model": "5"}, "bad_row"),
        (files.scienceqa("q", ["a", "b"], 0, hint=5), "bad_row"),
        (files.llava("a", ("q", 5)), "bad_turns"),
        ({"question": "q", "answer": None}, "missing_field"),
        ({"question": "q", "answer": float("nan")}, "missing_field"),
        ({"question": " ", "answer": "1"}, "missing_field"),
        ({"question": "q", "answer": "1", "tolerance": "5%"}, "bad_tolerance"),
        ({"question": "q", "answer": "1", "steps": "one"}, "bad_steps"),
    ],
)  # fmt: skip
def test_bad_rows_have_a_reason(row, reason):
    with pytest.raises(RejectedItem) as refused:
        read(row)
    assert refused.value.reason == reason
