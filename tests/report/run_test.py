"""What is read of a run directory, against hand counts."""

import math

from tests.report.report_run import make
from vade_jax.report import run


def test_groups_and_prompts_of_the_rollout_logs(known):
    assert len(known.groups) == 18 and list(known.logs) == [1, 2, 3, 4, 5, 6]
    prompt = known.prompts["train-0-2"]
    assert [(g.step, g.right, g.count) for g in prompt.visits[:2]] == [(1, 0, 4), (2, 1, 4)]
    first = prompt.visits[0]
    assert (first.alpha, first.beta, first.drawn) == (1, 2, 0.25)
    assert (prompt.gold, prompt.subset, prompt.rollouts) == ("red", "color 1", 24)
    assert prompt.wrong == {"wrong3": 5, "wrong2": 3, "wrong1": 2, "wrong0": 1}
    assert run.questions(known, [prompt]) == {"train-0-2": "Which color?"}


def test_a_run_without_posterior_has_groups_all_the_same(tmp_path):
    found = run.read(make(tmp_path, belief=False))
    assert len(found.groups) == 18 and math.isnan(found.groups[0].alpha)
    assert found.notes == []
