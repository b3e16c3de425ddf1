"""Files read by number without other splits and broken ones; rows of each form as questions."""

import pytest

from experiments.vade_9k import published
from tests.experiments.vade_9k import files
from vade_jax.data import row_files
from vade_jax.data.columns import RejectedItem


def rows(count, start=0):
    return [files.llava(f"r{i}", ("q", "a")) for i in range(start, start + count)]


@pytest.mark.parametrize("inside", ["", "train", "data"])
def test_files_of_the_training_split_where_publishers_put_them(tmp_path, inside):
    for name, start in (("test-0", 0), ("train-0", 2), ("train-1", 4)):
        files.write_parquet(tmp_path / inside / f"{name}.parquet", files.LLAVA, *rows(2, start))
    (tmp_path / inside / "dataset_info.json").write_text("{}")
    source = published.open_source(tmp_path)
    assert source.directory == tmp_path / inside and source.form.name == "LLaVA-OneVision"
    assert [source.table.read(i)["id"] for i in range(4)] == ["r2", "r3", "r4", "r5"]


# ------------------------------------------------------------------------------ forms
def read(row):
    form = published.detect(list(row), "a file")
    return published.Source(None, row_files.Table(1, list(row), lambda index: row), form).read(0)


def test_turns_share_the_image_and_only_the_first_has_the_mark():
    samples = read(files.llava("a", ("One?", "Yes"), ("Two?", "No")))
    assert [(s.turn, s.question, s.answer) for s in samples] == [
        (0, "One?", "Yes"),
        (1, "Two?", "No"),
    ]
    assert samples[0].images is samples[1].images and len(samples[0].images) == 1
    assert {s.answer_is for s in samples} == {"turn"}


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (files.llava("a"), "bad_turns"),
        (files.llava("a", ("q", "a")) | {"conversations": [{"from": "gpt", "value": "a"}]}, "bad_turns"),
        (files.llava("a", ("q<image>", "a")), "image_count"),
        (files.chartqa("q", ["1", "2"]), "several_answers"),
        (files.scienceqa("q", ["a"], 0), "bad_choices"),
        (files.scienceqa("q", ["a", "b"], -1), "bad_gold"),
        (files.verl("q", "1") | {"reward_model": None}, "missing_field"),
        ({"question": "q", "answer": None}, "missing_field"),
    ],
)  # fmt: skip
def test_bad_rows_have_a_reason(row, reason):
    with pytest.raises(RejectedItem) as refused:
        read(row)
    assert refused.value.reason == reason
