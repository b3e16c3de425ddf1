"""Lists of prompts and the sample of answers, against hand counts."""

import pathlib

import pytest

from tests.report import report_run
from vade_jax.report import examples, run
from vade_jax.report.run import Group, Prompt, Run
from vade_jax.store import rollout_log


def test_lists_of_prompts(known):
    found = examples.lists(known)
    assert {name: [p.uid for p in prompts] for name, prompts in found.items()} == {
        "hopeless": ["train-0-0"],
        "solved": ["train-0-1"],
        "learned": ["train-0-2"],
    }
    assert examples.share(known, found["hopeless"]) == pytest.approx(1 / 3)
    (learned,) = found["learned"]
    assert examples.rise(learned.visits) == pytest.approx(7 / 8 - 1 / 8)
    assert examples.wrong(learned, 2) == "wrong3 (5×), wrong2 (3×), 2 others"


@pytest.mark.parametrize(("counts", "listed"), [((0, 0), 0), ((4, 0), 0), ((4, 0, 4), 1)])
def test_a_prompt_is_never_right_only_where_its_answers_were_judged(counts, listed):
    visits = [Group(step, "a", 0, count, 0, 0, 0) for step, count in enumerate(counts)]
    prompt = Prompt("a", "1", "int", {}, (pathlib.Path(), 0), visits)
    found = examples.lists(Run(pathlib.Path(), prompts={"a": prompt}))
    assert len(found["hopeless"]) == listed


def test_visits_without_a_verdict_are_no_wrong_answers():
    visit = lambda right, count: Group(0, "a", right, count, 0, 0, 0)
    assert examples.rise([visit(0, 0), *[visit(6, 8)] * 3]) == 0
    assert examples.rise([visit(0, 0), visit(2, 8), visit(6, 8), visit(0, 0)]) == 0.5
    assert examples.rise([visit(0, 0)] * 4) == 0


def test_the_table_of_subsets(known):
    color = next(row for row in examples.table(known) if row["subset"] == "color 1")
    assert (color["groups"], color["prompts"]) == (6, 1)
    rates = [color[name] for name in ("share", "mixed", "early", "late")]
    assert rates == pytest.approx([1 / 3, 4 / 6, 1 / 8, 7 / 8])


def test_a_group_counts_its_judged_answers(tmp_path):
    workdir = report_run.make(tmp_path)
    path = rollout_log.path(workdir, 3)
    rows = rollout_log.read(path)
    first = rows["uid"].index("train-0-2")  # of 4 answers 2 are right, the first ones
    rows["correct"][first] = rows["correct"][first + 3] = None
    rollout_log.write(path, rows)
    sample = examples.sample(run.read(workdir), 10**6)
    group = next(g for g in sample if g["step"] == 3 and g["uid"] == "train-0-2")
    assert (group["right"], group["count"]) == (1, 2)
    assert [a["right"] for a in group["answers"]] == [None, True, False, None]


def test_a_sample_is_right_and_wrong_answers_of_every_subset(known):
    sample = examples.sample(known, 10**6)
    assert len(sample) == 18 and known.num_answers == 72
    mixed = next(g for g in sample if g["step"] == 3 and g["uid"] == "train-0-2")
    assert (mixed["right"], mixed["count"]) == (2, 4)
    assert [a["right"] for a in mixed["answers"]] == [True, True, False, False]
    assert mixed["belief"] == [1, 2, 0.25]
    few = examples.sample(known, 6000)
    assert 0 < len(few) < 18 and few == examples.sample(known, 6000)
    assert len({g["step"] for g in few}) == min(6, len(few))
