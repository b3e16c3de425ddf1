"""Differences to other evaluations: paired, of the same items, and honest about the rest."""

import json

import numpy as np
import pytest

from configs import eval_paper
from experiments.evaluations import plan, scores, summary
from tests.evals import scored
from tests.evals.benchmarks import files
from vade_jax.evals import benchmarks, results

WORSE = np.zeros_like(scored.CORRECT)


@pytest.fixture
def plans(tmp_path):
    rows = [files.chartqa(answer=str(n)) for n in range(4)]
    c = eval_paper.get_config()
    c.benchmarks.chartqa = files.save(tmp_path / "chart.parquet", *rows)
    return plan.make(c)


def of(plans, **changes):
    uids = tuple(item.uid for item in plans[0].items)
    return {"chartqa": scored.result(uids=uids, **changes)}


def test_a_difference_has_a_sign_and_names_what_was_not_alike(plans):
    mine = of(plans, settings={"sampling": {"temperature": 1.0, "top_p": 1.0}})
    other = of(
        plans,
        correct=WORSE,
        settings={"sampling": {"temperature": 0.5, "top_p": 1.0}},
    )
    found = summary.difference(mine, other, seed=0)
    assert found["chartqa"]["mean"] == 0.625
    assert 0 <= found["chartqa"]["low"] < 0.625 < found["chartqa"]["high"] <= 1
    assert found["settings"] == {"chartqa": ["sampling.temperature"]}
    assert "average" not in found


def test_the_average_takes_all_five():
    mine = {name: scored.result(name) for name in benchmarks.PAPER}
    other = {name: scored.result(name, correct=WORSE) for name in benchmarks.PAPER}
    found = summary.difference(mine, other, seed=0)
    assert found["average"]["mean"] == 0.625
    width = lambda name: found[name]["high"] - found[name]["low"]
    assert width("average") < width("chartqa")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"profile": "cot"}, "of profile 'cot', this of 'paper'"),
        ({"uids": ("chartqa:9",) * 4}, "is of other items: score both on the same"),
        ({"name": "mathvista"}, "has mathvista, none of the benchmarks here"),
    ],
)
def test_what_cannot_be_compared(plans, changes, message):
    uids = tuple(item.uid for item in plans[0].items)
    result = scored.result(**({"uids": uids} | changes))
    with pytest.raises(ValueError, match=message):
        summary.check_pair("there", {result.benchmark: result}, plans)


def test_what_is_written_can_be_read_and_labels_stay_apart(plans, tmp_path):
    other = of(plans, correct=WORSE)
    (tmp_path / "old" / "chartqa").mkdir(parents=True)
    results.save(tmp_path / "old" / "chartqa" / scores.RESULT, other["chartqa"])
    loaded = {"old": summary.load(tmp_path / "old")}
    options = {"skipped": ["mathvista"], "size": "", "seed": 0}
    shown = summary.write(str(tmp_path), of(plans), loaded, **options)
    assert "| mine | " in shown and "| mine (old) | " in shown
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["benchmarks"]["chartqa"]["accuracy"] == 0.625
    assert content["benchmarks"]["chartqa"]["pass"] == 0.75
    assert content["average"] is None and content["skipped"] == ["mathvista"]
    assert content["differences"]["old"]["chartqa"]["mean"] == 0.625
    assert "## ChartQA by type" in (tmp_path / "report.md").read_text()
