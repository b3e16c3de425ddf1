"""What is asked under each profile."""

import numpy as np
import pytest

from configs import eval_paper
from experiments.evaluations import plan
from tests.evals.benchmarks import files
from vade_jax.rollout.engine import Sampling


@pytest.fixture
def path(tmp_path):
    rows = [files.chartqa(answer=str(n)) for n in range(3)]
    return files.save(tmp_path / "chart.parquet", *rows)


def config(path, arg=None, **benchmarks):
    c = eval_paper.get_config(arg)
    c.benchmarks.chartqa = path
    c.benchmarks.update(benchmarks)
    return c


def test_the_paper_is_greedy_where_its_numbers_are(path):
    (chart,) = plan.make(config(path))
    assert (chart.num_samples, len(chart.keys)) == (1, 3)
    assert chart.sampling == Sampling(temperature=0.0, max_tokens=16)
    assert chart.asked[0].question.endswith("\nAnswer the question with a single word.")


def test_reasoning_is_sampled_and_its_knobs_are_the_configs(path):
    c = config(path, "cot,seed=3")
    assert (c.profile, c.seed) == ("cot", 3)
    c.sampling.update(dict(temperature=0.6, top_p=0.9, top_k=20))
    (chart,) = plan.make(c)
    assert chart.num_samples == 4
    assert chart.sampling == Sampling(0.6, 0.9, 20, 2048)
    c.sampling.update(dict(num_samples=2, max_tokens=9))
    (chart,) = plan.make(c)
    assert (chart.num_samples, chart.sampling.max_tokens) == (2, 9)
    assert chart.keys[:3] == [
        ("chartqa:chart:0", 0),
        ("chartqa:chart:0", 1),
        ("chartqa:chart:1", 0),
    ]


def test_the_first_items_in_the_order_of_the_table(path, tmp_path):
    vista = files.save(tmp_path / "vista.parquet", files.mathvista())
    c = config(path, mathvista=vista)
    c.num_items = 2
    found = plan.make(c)
    assert [(p.name, len(p.items)) for p in found] == [("mathvista", 1), ("chartqa", 2)]
    assert plan.skipped_of(c) == ["mathverse", "mathvision", "scienceqa"]


def test_images_can_be_opened_again_and_again(path):
    (chart,) = plan.make(config(path))
    for _ in range(2):
        (image,) = plan.opened(chart.asked[0]).images
        assert np.asarray(image).shape == (30, 40, 3)


def test_no_file_at_all():
    with pytest.raises(ValueError, match="no benchmark has a file: give one at least"):
        plan.make(eval_paper.get_config())
