"""Whose the directory of an evaluation is; the whole program is in tests/experiments/evaluate_test.py."""

import json

import pytest

from configs import eval_paper
from tests.evals.benchmarks import files
from vade_jax.evals.evaluation import Evaluation
from vade_jax.run import evaluation


def saved_answers(directory, *texts):
    """Returns the settings that score these answers to two items of ChartQA."""
    c, path = eval_paper.get_config(), directory / "answers.jsonl"
    c.benchmarks.chartqa = files.save(
        directory / "chartqa.parquet", files.chartqa(), files.chartqa()
    )
    rows = [{"uid": f"chartqa:chartqa:{i}", "text": text} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    c.answers, c.judge.rules = str(path), True
    return Evaluation.from_dict(c.to_dict())


def test_a_directory_is_one_evaluations_from_start_to_report(tmp_path):
    """Two would mix their answers."""
    settings, workdir = saved_answers(tmp_path, "10", "11"), str(tmp_path / "out")
    first = evaluation.prepare(settings, workdir)
    with pytest.raises(ValueError, match=f"--workdir={workdir} is another run's"):
        evaluation.prepare(settings, workdir)
    evaluation.answer(first)
    evaluation.check_answers(first)
    with pytest.raises(ValueError, match="is another run's"):
        evaluation.prepare(settings, workdir)
    assert "50.0" in evaluation.write_report(first)
    evaluation.write_report(evaluation.prepare(settings, workdir))


def test_an_evaluation_that_cannot_start_leaves_the_directory_free(tmp_path):
    workdir = str(tmp_path / "out")
    with pytest.raises(ValueError, match="1 of 2 answers are missing"):
        evaluation.prepare(saved_answers(tmp_path, "10"), workdir)
    evaluation.prepare(saved_answers(tmp_path, "10", "11"), workdir).owned.close()
