"""Lists of prompts and the sample of answers, against hand counts."""

import pytest

from tests.report.report_run import make
from vade_jax.report import examples, run


@pytest.fixture
def log(tmp_path):
    return run.read_log(make(tmp_path))


def test_lists_of_prompts(log):
    found = {chosen.name: chosen for chosen in examples.lists(log, 5)}
    uids = {name: [p.uid for p in chosen.prompts] for name, chosen in found.items()}
    assert uids == {
        "hopeless": ["train-0-0"],
        "solved": ["train-0-1"],
        "learned": ["train-0-2"],
    }
    assert found["hopeless"].share == pytest.approx(1 / 3)
    learned = found["learned"].prompts[0]
    assert examples.rise(learned.visits) == pytest.approx(7 / 8 - 1 / 8)
    assert examples.wrong(learned, 2) == "wrong3 (5×), wrong2 (3×), 2 others"
    assert examples.strip(learned)[1] == {
        "rate": 0.25,
        "title": "step 2: 1 of 4 right",
    }
    assert found["hopeless"].num_all == 1 and not examples.lists(log, 0)[0].prompts


def test_the_table_of_subsets(log):
    color = next(row for row in examples.table(log) if row["subset"] == "color 1")
    assert (color["groups"], color["prompts"]) == (6, 1)
    rates = [color[name] for name in ("share", "mixed", "early", "late")]
    assert rates == pytest.approx([1 / 3, 4 / 6, 1 / 8, 7 / 8])


def test_a_sample_is_right_and_wrong_answers_of_every_subset(log):
    sample, num_all = examples.sample(log, 10**6)
    assert num_all == 72 and len(sample) == 18
    mixed = next(g for g in sample if g["step"] == 3 and g["uid"] == "train-0-2")
    assert (mixed["right"], mixed["count"]) == (2, 4)
    assert [a["right"] for a in mixed["answers"]] == [True, True, False, False]
    assert mixed["belief"] == [1, 2, 0.25]
    few, _ = examples.sample(log, 6000)
    assert 0 < len(few) < 18 and few == examples.sample(log, 6000)[0]
    assert len({g["step"] for g in few}) == min(6, len(few))
