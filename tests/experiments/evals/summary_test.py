"""The table's cells by hand, and differences to other evaluations."""

import json

import numpy as np
import pytest

from experiments.evals import benchmarks, results, summary, tasks
from experiments.evals.settings import Evaluation
from tests.experiments.evals.benchmarks import files
from tests.experiments.evals.scored import CORRECT, result

WORSE = np.zeros_like(CORRECT)


def five(**changes):
    return {name: result(name, **changes) for name in benchmarks.PAPER}


def cells(table, row):
    line = next(x for x in table.splitlines() if x.startswith(f"| {row} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_of_ours():
    text = summary.table({"mine": five(), "one": {"chartqa": result()}})
    # 62.5 % right; item means .5 1 0 1, their standard error sqrt(11/48) / 2.
    assert cells(text, "mine")[1:6] == ["62.50 ± 23.94"] * 5
    average, low, high = cells(text, "mine")[6].replace("[", "").strip("]").split()
    assert average == "62.50" and float(low.strip(",")) < 62.5 < float(high)
    assert cells(text, "one")[1:] == ["", "", "", "", "62.50 ± 23.94", ""]
    titles = text.splitlines()[0]
    assert "MathVista (n=4 of 1000)" in titles and "ChartQA (n=4 of 2500)" in titles


# ------------------------------------------------------------------------------ differences
@pytest.fixture
def asked(tmp_path):
    """Four items of ChartQA."""
    rows = [files.chartqa(answer=str(n)) for n in range(4)]
    path = files.save(tmp_path / "chart.parquet", *rows)
    return tasks.read(Evaluation(benchmarks={"chartqa": path}))


def of(asked, **changes):
    uids = tuple(item.uid for item in asked[0].items)
    return result(**({"uids": uids} | changes))


def test_a_difference_has_a_sign_and_names_what_was_not_alike():
    mine = result(settings={"sampling": {"temperature": 1.0, "top_p": 1.0}})
    settings = {"sampling": {"temperature": 0.5, "top_p": 1.0}}
    other = result(correct=WORSE, settings=settings)
    found = summary.difference({"chartqa": mine}, {"chartqa": other}, seed=0)
    assert found["chartqa"]["mean"] == 0.625
    assert 0 <= found["chartqa"]["low"] < 0.625 < found["chartqa"]["high"] <= 1
    assert found["settings"] == {"chartqa": ["sampling.temperature"]}
    assert "average" not in found


def test_the_average_takes_all_five():
    found = summary.difference(five(), five(correct=WORSE), seed=0)
    assert found["average"]["mean"] == 0.625
    width = lambda name: found[name]["high"] - found[name]["low"]
    assert width("average") < width("chartqa")


def test_what_is_written_can_be_read_and_labels_stay_apart(asked, tmp_path):
    (tmp_path / "old" / "chartqa").mkdir(parents=True)
    old = tmp_path / "old" / "chartqa" / results.RESULT
    results.save(old, of(asked, correct=WORSE))
    loaded = {"old": results.load_all(tmp_path / "old")}
    options = {"skipped": ["mathvista"], "seed": 0}
    shown = summary.write(str(tmp_path), {"chartqa": of(asked)}, loaded, **options)
    assert "| mine | " in shown and "| mine (old) | " in shown
    content = json.loads((tmp_path / "results.json").read_text())
    assert content["benchmarks"]["chartqa"]["accuracy"] == 0.625
    assert content["benchmarks"]["chartqa"]["pass"] == 0.75
    assert content["average"] is None and content["skipped"] == ["mathvista"]
    assert content["differences"]["old"]["chartqa"]["mean"] == 0.625
    assert "## ChartQA by type" in (tmp_path / "report.md").read_text()
