"""Answers on disk: cut off, damaged, of other programs."""

import json

import pyarrow as pa
import pytest
from pyarrow import parquet

from configs import eval_paper
from experiments.evaluations import answers, plan, saved
from tests.evals.benchmarks import files

ANSWER = answers.Answer("a:1", 0, "sí\n\ud800", 3, True)


@pytest.fixture
def plans(tmp_path):
    c = eval_paper.get_config()
    rows = [files.mathvista("1"), files.mathvista("2")]
    c.benchmarks.mathvista = files.save(tmp_path / "vista.parquet", *rows)
    c.sampling.num_samples = 2
    return plan.make(c)


def test_answers_come_back_and_are_kept_once(tmp_path):
    store = answers.Store(tmp_path / "new" / "answers.jsonl")
    store.add([ANSWER])
    store.add([ANSWER])
    again = answers.Store(tmp_path / "new" / "answers.jsonl")
    assert again.answers == {("a:1", 0): ANSWER}
    assert len((tmp_path / "new" / "answers.jsonl").read_text().splitlines()) == 1


def test_a_line_that_was_cut_off_is_made_again(tmp_path):
    path = tmp_path / "answers.jsonl"
    answers.Store(path).add([ANSWER])
    path.write_bytes(path.read_bytes() + b'{"uid": "a:2", "sam')
    store = answers.Store(path)
    assert list(store.answers) == [("a:1", 0)]
    store.add([answers.Answer("a:2", 0, "x")])
    assert list(answers.Store(path).answers) == [("a:1", 0), ("a:2", 0)]


@pytest.mark.parametrize("line", ["{", '{"uid": "x"}', "3"])
def test_damage_within_the_file_is_no_silent_loss(tmp_path, line):
    path = tmp_path / "answers.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(ValueError, match=r"answers.jsonl, line 1 is no"):
        answers.Store(path)


def test_a_table_without_samples_is_counted(tmp_path, plans):
    uids = ["mathvista:1", "mathvista:2", "mathvista:1", "mathvista:2"]
    table = pa.table({"uid": uids, "response": ["a", "b", "c", "d"], "more": [1] * 4})
    parquet.write_table(table, tmp_path / "answers.parquet")
    found = saved.read(str(tmp_path / "answers.parquet"), plans)["mathvista"].answers
    assert {key: answer.text for key, answer in found.items()} == {
        ("mathvista:1", 0): "a",
        ("mathvista:2", 0): "b",
        ("mathvista:1", 1): "c",
        ("mathvista:2", 1): "d",
    }


def test_all_files_of_a_directory_and_none(tmp_path, plans):
    directory = tmp_path / "saved"
    directory.mkdir()
    with pytest.raises(ValueError, match="is no file or directory of answers"):
        saved.read(str(directory), plans)
    for sample in range(2):
        row = {"uid": "mathvista:1", "sample": sample, "text": "x"}
        (directory / f"{sample}.jsonl").write_text(json.dumps(row))
    assert len(saved.read(str(directory), plans)["mathvista"].answers) == 2


def test_one_answer_cannot_stand_for_two_prompts(tmp_path):
    c, path = (
        eval_paper.get_config(),
        files.save(tmp_path / "v.parquet", files.mathverse()),
    )
    c.benchmarks.mathverse = c.benchmarks.mathverse_direct = path
    (tmp_path / "a.jsonl").write_text('{"uid": "mathverse:1", "text": "B"}')
    with pytest.raises(
        ValueError, match=r"mathverse and mathverse_direct ask .* differ"
    ):
        saved.read(str(tmp_path / "a.jsonl"), plan.make(c))
