"""Benchmarks' files as validation sets of a run."""

import jax
import numpy as np
import pytest

from configs import tiny_gspo
from experiments.evaluations import validation
from tests.evals.benchmarks import files
from vade_jax.data import tokens
from vade_jax.rollout import fake

TEXTS = ["How many? Answer the question with a single word.", r"\boxed{10}"]


@pytest.fixture
def path(tmp_path):
    rows = [files.chartqa(), files.chartqa(answer="no"), files.chartqa(answer="7")]
    return files.save(tmp_path / "chart.parquet", *rows)


def config(benchmarks, profile="cot", benchmark_items=0):
    c = tiny_gspo.get_config("smoke")
    with c.unlocked():
        c.eval.update(dict(benchmarks=benchmarks, profile=profile))
        c.eval.benchmark_items = benchmark_items
    c.data.min_pixels = 3136
    c.data.max_prompt_length = 512
    return c


class Engine(fake.FakeEngine):
    """Says one token: 1 for what is right for the first item."""

    def generate(self, prompts, num_rollouts_M, key, version, sampling, on_group):
        self.prompts, self.sampling = prompts, sampling
        self.pass_rate = {prompt.uid: 1.0 for prompt in prompts}
        return super().generate(
            prompts, num_rollouts_M, key, version, on_group=on_group
        )


def test_accuracy_by_the_benchmark_is_a_metric_of_the_run(path, tmp_path, monkeypatch):
    c = config(f"chartqa:{path}", benchmark_items=2)
    tokenizer = tokens.build(tmp_path / "tokens", TEXTS, 512)
    monkeypatch.setattr(tokenizer, "decode", lambda ids: r"\boxed{10}")
    items = validation.read(c)
    assert len(items["chartqa"]) == 2
    (validate,) = validation.make(c, tokenizer, items)
    engine = Engine({})
    assert validate(engine, jax.random.key(0), 0) == {"val/chartqa/acc/mean@4": 0.5}
    assert engine.sampling.max_tokens == c.eval.max_tokens
    first = engine.prompts[0]
    assert "How many?" in first.text and r"\boxed{}." in first.text
    assert first.images[0].dtype == np.uint8


def test_a_prompt_that_cannot_be_made_names_its_item(path, tmp_path):
    c = config(f"chartqa:{path}")
    c.data.max_prompt_length = 8
    tokenizer = tokens.build(tmp_path / "tokens", TEXTS, 512)
    with pytest.raises(ValueError, match=r"chartqa:chart:0 makes no prompt \(too_long"):
        validation.make(c, tokenizer, validation.read(c))


@pytest.mark.parametrize(
    ("benchmarks", "message"),
    [
        ("chart:x", "'chart:x': write BENCHMARK:FILE; benchmarks are mathvista, "),
        ("chartqa", "'' does not exist"),
        ("chartqa:gone.parquet", "'gone.parquet' does not exist"),
        ("mathvista_binary:{path}", "mathvista_binary has no rules"),
        ("chartqa:{path},chartqa:{path}", "chartqa is there twice"),
    ],
)
def test_mistakes(path, benchmarks, message):
    with pytest.raises(ValueError, match=message):
        validation.paths(config(benchmarks.format(path=path)))


def test_none_is_none():
    assert validation.read(config("")) == {}
