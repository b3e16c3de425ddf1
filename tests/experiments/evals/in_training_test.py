"""Benchmarks' files as validation of a run, by an engine whose answers are known."""

import jax
import numpy as np
import pytest

from experiments.evals import in_training
from tests.experiments.evals.benchmarks import files
from tests.trainer.validation_test import Engine, own
from vade_jax import settings
from vade_jax.models.qwen import tiny_tokenizer
from vade_jax.rollout.engine import Sampling

TEXTS = ["How many? Answer the question with a single word.", r"\boxed{10}"]


@pytest.fixture
def path(tmp_path):
    rows = [files.chartqa(answer=answer) for answer in ("B", "no", "7")]
    return files.save(tmp_path / "chart.parquet", *rows)


def test_accuracy_by_the_benchmarks_own_rules_beside_the_runs_own_items(
    path, tmp_path, monkeypatch
):
    rows = [files.mathvista("1"), files.mathvista("2", answer="135°")]
    vista = files.save(tmp_path / "vista.parquet", *rows)
    benchmarks = f"chartqa:{path},mathvista:{vista}"
    run = settings.Run(
        data=settings.Data(min_pixels=3136, max_prompt_length=512),
        eval=settings.Eval(benchmarks=benchmarks, benchmark_items=2, num_samples=4, max_tokens=9),
    )
    tokenizer = tiny_tokenizer.build(tmp_path / "tokens", TEXTS, 512)
    # the fake engine's token 1 stands for what is right for the first items
    say = lambda ids: r"so \boxed{B}" if ids[0] == 1 else "who knows"
    monkeypatch.setattr(tokenizer, "decode", say)
    validations = [own(""), *in_training.make(run.eval, run.data, tokenizer)]
    for rate, right in ((1.0, 0.5), (0.0, 0.0)):
        uids = ["chartqa:chart:0", "chartqa:chart:1", "mathvista:1", "mathvista:2"]
        engine = Engine({"0": 0.0} | dict.fromkeys(uids, rate), version=7)
        metrics = {}
        for validate in validations:
            metrics |= validate(engine, jax.random.key(0), 7, frozenset())[0]
        assert metrics == {
            "val/mine/acc/mean@4": 0.0,  # without families there is one number
            "val/chartqa/acc/mean@4": right,
            "val/mathvista/acc/mean@4": right,
        }
    assert engine.asked[2] == Sampling(temperature=run.eval.temperature, max_tokens=9)
    first = engine.prompts[0]
    assert "Hint: Answer by" in first.text and r"\boxed{}." in first.text
    assert first.images[0].dtype == np.uint8
    with pytest.raises(ValueError, match=r"chartqa:chart:0 makes no prompt \(too_long"):
        in_training.make(run.eval, settings.Data(max_prompt_length=8), tokenizer)
