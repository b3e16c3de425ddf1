"""The settings of an evaluation: defaults that a config can hold, and one clear line for a mistake."""

import pytest

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


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"profile": "chain"}, "profile='chain': known are paper, cot"),
        ({"benchmarks": {"mathvsta": "x"}}, "benchmarks.mathvsta: known are mathvista"),
        ({"num_items": -1}, "num_items=-1: must be"),
        ({"sampling": {"temperature": float("nan")}}, "sampling.temperature=nan"),
        ({"sampling": {"top_p": 0.0}}, r"sampling.top_p=0.0: must be in \(0, 1\]"),
        ({"data": {"max_pixels": 2000}}, "min_pixels=3136 is larger than .*=2000"),
        ({"server": {"url": "http://x"}}, "server.model is empty: give the name"),
        ({"server": {"fields": "[]"}}, r"server.fields='\[\]' is no JSON object"),
        ({"judge": {"fields": "{"}}, "judge.fields='{' is no JSON object"),
        ({"judge": SERVER | {"rules": True}}, "--rules and --judge_server given: one of them"),
        ({"server": SERVER, "data": {"template": {"a": False}}}, "data.template=.*server.fields"),
        ({"server": SERVER, "data": {"max_prompt_length": 512}}, "data.max_prompt_length=512 does"),
        ({"server": SERVER, "sampling": {"top_k": 20}}, "sampling.top_k=20 does nothing"),
    ],
)
def test_mistakes(given, message):
    with pytest.raises(ValueError, match=message):
        Evaluation.from_dict(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give either --checkpoint or --server"),
        (
            {"server": {"url": "http://a", "model": "m"}, "model": {"checkpoint": "there"}},
            "give either --checkpoint or --server",
        ),
        ({"model": {"checkpoint": "there"}}, "no benchmark has a file: give one at least"),
    ],
)
def test_what_is_not_complete(given, message):
    with pytest.raises(ValueError, match=message):
        Evaluation.from_dict(given).check_complete()
