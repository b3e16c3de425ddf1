"""Answers on disk: cut off and damaged."""

import pytest

from experiments.evals import answers

ANSWER = answers.Answer("a:1", 0, "sí\n\ud800", 3, True)


def test_answers_come_back(tmp_path):
    path = tmp_path / "answers.jsonl"
    answers.open_store(path).add([vars(ANSWER)])
    assert answers.open_store(path) == {("a:1", 0): ANSWER}
    path.write_text('{"uid": "x"}\n')
    with pytest.raises(ValueError, match=r"answers.jsonl, line 1 is damaged"):
        answers.open_store(path)
