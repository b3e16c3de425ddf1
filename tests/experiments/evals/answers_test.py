"""Answers on disk: cut off, damaged, of other programs."""

import json

import pytest

from experiments.evals import answers, tasks
from experiments.evals.settings import Evaluation, Sampling
from tests.experiments.evals.benchmarks import files

ANSWER = answers.Answer("a:1", 0, "sí\n\ud800", 3, True)


@pytest.fixture
def vista(tmp_path):
    rows = [files.mathvista("1"), files.mathvista("2")]
    path = files.save(tmp_path / "vista.parquet", *rows)
    return tasks.read(Evaluation(benchmarks={"mathvista": path}, sampling=Sampling(num_samples=2)))


def test_answers_come_back(tmp_path):
    path = tmp_path / "answers.jsonl"
    answers.open_store(path).add([vars(ANSWER)])
    assert answers.open_store(path) == {("a:1", 0): ANSWER}
    path.write_text('{"uid": "x"}\n')
    with pytest.raises(ValueError, match=r"answers.jsonl, line 1 is damaged"):
        answers.open_store(path)


def save(path, *rows):
    rows = [dict(zip(("uid", "text", "sample"), row, strict=False)) for row in rows]
    path.write_text("\n".join(map(json.dumps, rows)))  # without a newline at the end, too
    return str(path)


def test_answers_of_other_programs(tmp_path, vista, capsys):
    """A sample is 0 by default; answers to what is not asked are left out and counted."""
    others = [("mathvista:3", "x"), ("chartqa:c:0", "x"), ("mathvista:1", "x", 2)]
    own = [("mathvista:1", "a"), ("mathvista:2", "b", 0), ("mathvista:1", "c", 1)]
    path = save(tmp_path / "a.jsonl", *own, *others)
    saved = answers.read_saved(path, vista)["mathvista"]
    assert {key: answer.text for key, answer in saved.items()} == {
        ("mathvista:1", 0): "a",
        ("mathvista:1", 1): "c",
        ("mathvista:2", 0): "b",
    }
    assert "3 answers to other questions are left out" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (("mathvista:1", "x", 0), "has an answer twice"),
        (("mathvista:1",), "no file of JSON lines with uid and text"),
        (("mathvista:1", 3), "no file of JSON lines with uid and text"),
        ((["mathvista:1"], "x"), "no file of JSON lines with uid and text"),
    ],
)
def test_answers_of_other_programs_that_cannot_be_taken(tmp_path, vista, row, message):
    path = save(tmp_path / "a.jsonl", ("mathvista:1", "a"), row)
    with pytest.raises(ValueError, match=message):
        answers.read_saved(path, vista)
    with pytest.raises(ValueError, match="no file of JSON lines"):
        answers.read_saved(str(tmp_path), vista)


def test_one_answer_cannot_stand_for_two_prompts(tmp_path):
    path = files.save(tmp_path / "v.parquet", files.mathvision())
    two = Evaluation(benchmarks={"mathvision": path, "mathvision_lmms_eval": path})
    saved = save(tmp_path / "a.jsonl", ("mathvision:1", "B"))
    with pytest.raises(ValueError, match="score them one by one"):
        answers.read_saved(saved, tasks.read(two))
