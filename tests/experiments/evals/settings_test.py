"""The settings of an evaluation: defaults that a config can hold, and one clear line for a mistake."""

from configs import eval_paper
from experiments.evals.settings import Evaluation

SERVER = {"url": "http://x", "model": "m"}


def test_the_config_holds_every_setting():
    c = eval_paper.get_config()
    assert c.judge.model == "Qwen/Qwen2.5-72B-Instruct"  # the paper's
    c.judge.model = ""
    assert Evaluation.from_dict(c.to_dict()) == Evaluation()
    found = Evaluation.from_dict(eval_paper.get_config("cot,seed=3").to_dict())
    assert (found.profile, found.seed) == ("cot", 3)


def test_the_papers_benchmarks_without_files():
    one = Evaluation(benchmarks={"mathverse": "a.parquet"})
    assert one.skipped == ["mathvista", "mathvision", "scienceqa", "chartqa"]
