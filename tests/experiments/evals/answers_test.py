"""Answers on disk: cut off, damaged, of other programs."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from experiments.evals import answers, tasks
from experiments.evals.settings import Evaluation, Sampling
from tests.experiments.evals.benchmarks import files

ANSWER = answers.Answer("a:1", 0, "sí\n\ud800", 3, True)


@pytest.fixture
def vista(tmp_path):
    rows = [files.mathvista("1"), files.mathvista("2")]
    path = files.save(tmp_path / "vista.parquet", *rows)
    return tasks.read(Evaluation(benchmarks={"mathvista": path}, sampling=Sampling(num_samples=2)))


def test_answers_come_back_and_are_kept_once(tmp_path):
    store = answers.Store(tmp_path / "new" / "answers.jsonl")
    store.add([ANSWER])
    store.add([ANSWER])
    again = answers.Store(tmp_path / "new" / "answers.jsonl")
    assert again == {("a:1", 0): ANSWER}
    assert len((tmp_path / "new" / "answers.jsonl").read_text().splitlines()) == 1


def test_a_line_that_was_cut_off_is_made_again(tmp_path):
    path = tmp_path / "answers.jsonl"
    answers.Store(path).add([ANSWER])
    path.write_bytes(path.read_bytes() + b'{"uid": "a:2", "sam')
    store = answers.Store(path)
    assert list(store) == [("a:1", 0)]
    store.add([answers.Answer("a:2", 0, "x")])
    assert list(answers.Store(path)) == [("a:1", 0), ("a:2", 0)]


@pytest.mark.parametrize("line", ["{", '{"uid": "x"}', "3"])
def test_damage_within_the_file_is_no_silent_loss(tmp_path, line):
    path = tmp_path / "answers.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=r"answers.jsonl, line 1 is no"):
        answers.Store(path)


def test_a_table_without_samples_is_counted(tmp_path, vista):
    uids = ["mathvista:1", "mathvista:2", "mathvista:1", "mathvista:2"]
    table = pa.table({"uid": uids, "response": ["a", "b", "c", "d"], "more": [1] * 4})
    parquet.write_table(table, tmp_path / "answers.parquet")
    found = answers.read_saved(str(tmp_path / "answers.parquet"), vista)["mathvista"]
    assert {key: answer.text for key, answer in found.items()} == {
        ("mathvista:1", 0): "a",
        ("mathvista:2", 0): "b",
        ("mathvista:1", 1): "c",
        ("mathvista:2", 1): "d",
    }


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([("mathvista:1", "x", 0)], "the answer mathvista:1, sample 0, is there twice"),
        ([("mathvista:1", "x", 2)], "1 answers are beyond the number that the protocol"),
        ([("mathvista:1",)], "row 1 has no uid and text"),
        ([("mathvista:1", "x", "y")], "sample='y' is no whole number"),
    ],
)
def test_answers_of_other_programs_that_cannot_be_taken(tmp_path, vista, rows, message):
    lines = [
        json.dumps(dict(zip(("uid", "text", "sample"), row, strict=False)))
        for row in [("mathvista:1", "a"), *rows]
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(ValueError, match=message):
        answers.read_saved(str(tmp_path / "a.jsonl"), vista)


def test_all_files_of_a_directory_and_none(tmp_path, vista):
    directory = tmp_path / "saved"
    directory.mkdir()
    with pytest.raises(ValueError, match="is no file or directory of answers"):
        answers.read_saved(str(directory), vista)
    for sample in range(2):
        row = {"uid": "mathvista:1", "sample": sample, "text": "x"}
        (directory / f"{sample}.jsonl").write_text(json.dumps(row))
    assert len(answers.read_saved(str(directory), vista)["mathvista"]) == 2


def test_the_directory_of_an_evaluation_is_its_answers_and_no_raw_replies(tmp_path, vista):
    for name in ("mathvista", answers.REPLIES):
        (tmp_path / "old" / name).mkdir(parents=True)
    answers.Store(tmp_path / "old" / "mathvista" / answers.NAME).add(
        [answers.Answer("mathvista:1", 0, "x")]
    )
    replies = tmp_path / "old" / answers.REPLIES / answers.NAME
    replies.write_text('{"key": "a", "request": {}, "reply": {}}')
    found = answers.read_saved(str(tmp_path / "old"), vista)
    assert list(found["mathvista"]) == [("mathvista:1", 0)]


def test_answers_to_what_is_not_asked_are_left_out_and_counted(tmp_path, capsys):
    path = files.save(tmp_path / "v.parquet", *(files.mathvista(str(i)) for i in range(4)))
    (task,) = tasks.read(Evaluation(benchmarks={"mathvista": path}, num_items=2))
    uids = [*(f"mathvista:{i}" for i in range(4)), "chartqa:c:0"]
    lines = [json.dumps({"uid": uid, "text": "x", "sample": 0}) for uid in uids]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    found = answers.read_saved(str(tmp_path / "a.jsonl"), [task])
    assert list(found["mathvista"]) == [("mathvista:0", 0), ("mathvista:1", 0)]
    left_out = "3 answers left out, of other items: mathvista:2, mathvista:3, chartqa:c:0\n"
    assert left_out in capsys.readouterr().out


def test_one_answer_cannot_stand_for_two_prompts(tmp_path):
    path = files.save(tmp_path / "v.parquet", files.mathvision())
    two = Evaluation(benchmarks={"mathvision": path, "mathvision_lmms_eval": path})
    (tmp_path / "a.jsonl").write_text('{"uid": "mathvision:1", "text": "B"}')
    with pytest.raises(ValueError, match=r"mathvision_lmms_eval asks mathvision:1 in other words"):
        answers.read_saved(str(tmp_path / "a.jsonl"), tasks.read(two))
