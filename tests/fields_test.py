"""Sections: what other code does with one."""

import copy
import dataclasses
import pickle
from collections.abc import Mapping
from typing import Any

import pytest

from experiments.evals import in_training
from experiments.evals import settings as evaluation
from experiments.vade_9k.settings import Build
from vade_jax import fields, imports, settings
from vade_jax.data import sources


@dataclasses.dataclass(frozen=True)
class Some(fields.Section):
    options: Mapping[str, Any] = fields.mapping(a=1)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda run: pickle.loads(pickle.dumps(run))])
def test_a_section_with_mappings_is_pickled_and_copied(copied):
    run = settings.Run(selector=settings.Selector(options={"decay_rest": 0.9}))
    assert copied(run) == run
    assert copied(Some()) == Some() == Some(options={"a": 1}) != Some(options={})


def test_dataclasses_asdict_takes_a_section():
    assert dataclasses.asdict(Some()) == Some().to_dict() == {"options": {"a": 1}}
    assert dataclasses.asdict(settings.Run())["selector"]["options"] == {}


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_path_of_a_run_and_of_an_evaluation_may_be_in_the_home_directory(home):
    sections = {
        settings.Data: ("train", "validation", "image_root"),
        settings.Model: ("checkpoint",),
        settings.Engine: ("sync_directory",),
        evaluation.Model: ("checkpoint",),
        Build: ("source", "checkpoint"),
    }
    for section, names in sections.items():
        made = section(**dict.fromkeys(names, "~/a"))
        assert [getattr(made, name) for name in names] == [f"{home}/a"] * len(names)
    scored = evaluation.Evaluation(benchmarks={"chartqa": "~/a"}, compare=("~/b",))
    assert (scored.benchmarks["chartqa"], scored.compare) == (f"{home}/a", (f"{home}/b",))
    built = Build(benchmarks={"chartqa": "~/a"}, own=("~/b",))
    assert (built.benchmarks["chartqa"], *built.own) == (f"{home}/a", f"{home}/b")
    (home / "mine.py").write_text(
        "def pay(completions, **kwargs):\n    return [1.0] * len(completions)"
    )
    assert imports.load("~/mine.py:pay", "reward.function")([1]) == [1.0]
    (home / "a.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}')
    assert len(sources.rows("~/a.jsonl")) == 1
    in_run = settings.Eval(benchmarks="chartqa:~/a.jsonl")
    assert in_training.paths(in_run) == {"chartqa": f"{home}/a.jsonl"}
