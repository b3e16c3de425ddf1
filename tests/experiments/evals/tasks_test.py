"""What is asked under each profile."""

import pytest

from experiments.evals import tasks
from experiments.evals.settings import Evaluation, Sampling
from tests.experiments.evals.benchmarks import files
from vade_jax.rollout import engine


@pytest.fixture
def path(tmp_path):
    rows = [files.chartqa(answer=str(n)) for n in range(3)]
    return files.save(tmp_path / "chart.parquet", *rows)


def read(path, **changes):
    return tasks.read(Evaluation(benchmarks={"chartqa": path}, **changes))


def test_the_paper_is_greedy_where_its_numbers_are(path):
    (chart,) = read(path)
    assert (chart.num_samples, len(chart.keys)) == (1, 3)
    assert chart.sampling == engine.Sampling(temperature=0.0, max_tokens=16)
    assert chart.asked[0].question.endswith("\nAnswer the question with a single word.")


def test_reasoning_is_sampled_as_the_settings_say(path):
    drawn = {"temperature": 0.6, "top_p": 0.9, "top_k": 20}
    (chart,) = read(path, profile="cot", sampling=Sampling(**drawn))
    assert chart.num_samples == 4
    assert chart.sampling == engine.Sampling(0.6, 0.9, 20, 2048)
    few = Sampling(num_samples=2, max_tokens=9)
    (chart,) = read(path, profile="cot", sampling=few)
    assert (chart.num_samples, chart.sampling.max_tokens) == (2, 9)
    assert chart.keys[:3] == [
        ("chartqa:chart:0", 0),
        ("chartqa:chart:0", 1),
        ("chartqa:chart:1", 0),
    ]
