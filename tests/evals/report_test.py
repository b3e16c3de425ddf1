"""The table's cells by hand, and its refusals."""

import dataclasses

import numpy as np
import pytest

from tests.evals.scored import CORRECT, result
from vade_jax.evals import benchmarks, report, results


def five(**changes):
    return [result(name, **changes) for name in benchmarks.PAPER]


def cells(table, row):
    line = next(x for x in table.splitlines() if x.startswith(f"| {row} |"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_a_row_of_ours():
    table = report.table([*five(), result(label="one")])
    # 62.5 % right; item means .5 1 0 1, their standard error sqrt(11/48) / 2.
    assert cells(table, "mine")[1:6] == ["62.50 ± 23.94"] * 5
    average, low, high = cells(table, "mine")[6].replace("[", "").strip("]").split()
    assert average == "62.50" and float(low.strip(",")) < 62.5 < float(high)
    assert cells(table, "one")[1:] == ["", "", "", "", "62.50 ± 23.94", ""]
    titles = table.splitlines()[0]
    assert "MathVista (n=4 of 1000)" in titles and "ChartQA (n=4 of 2500)" in titles


def test_the_papers_rows():
    table = report.table(five(), size="7B")
    row = cells(table, "VADE + GRPO 7B (paper)")
    assert row[1:] == ["", "", "", "", "", "64.75"]
    assert cells(table, "base 7B (paper)")[1:] == ["", "40.36", "", "", "", "58.63"]
    assert cells(report.table(five(), size="3B"), "base 3B (paper)")[6] == "50.65"
    assert "arXiv 2511.18902, Table 1" in table
    with pytest.raises(ValueError, match="size='72B' is not in the paper"):
        report.table(five(), size="72B")


def test_the_papers_claims_follow_from_its_numbers():
    paper = {k: v["average"] for k, v in report.PAPER["7B"].items()}
    assert paper["VADE + GRPO"] - paper["GRPO"] == pytest.approx(2.93)
    assert paper["VADE + GSPO"] - paper["GSPO"] == pytest.approx(2.01)


def test_profiles_are_never_mixed():
    with pytest.raises(ValueError, match=r"\['cot', 'paper'\] cannot share a table"):
        report.table([result(), result(label="other", profile="cot")])
    table = report.table([result(profile="cot")], size="7B")
    assert "7B (paper)" not in table and "of another profile" in table


def test_other_refusals():
    with pytest.raises(ValueError, match="mine has chartqa twice"):
        report.table([result(), result()])
    with pytest.raises(ValueError, match="chartqa of other is of other items"):
        report.table([result(), result(label="other", correct=CORRECT[:2])])
    with pytest.raises(ValueError, match="no results"):
        report.table([])


def test_failures_of_the_judge_are_told():
    found = result(counts={"judge_failed": 3, "other": 0})
    text = report.table(
        [dataclasses.replace(found, counts={"judge_failed": 3, "missing": 1})]
    )
    assert (
        f"mine, chartqa: judge_failed 3, missing 1 of {CORRECT.size} answers." in text
    )
    assert "other" not in report.table([found])


def test_one_cluster_has_no_error_and_the_file_is_json(tmp_path):
    found = result(clusters=["a"] * len(CORRECT))
    assert cells(report.table([found]), "mine")[5] == f"{100 * CORRECT.mean():.2f}"
    results.save(tmp_path / "result.json", found)
    assert "NaN" not in (tmp_path / "result.json").read_text()
    assert results.summary(found)["standard_error"] is None


def test_versions_of_a_problem_are_one_cluster():
    plain, clustered = result(), result(clusters=["a", "b", "b", "a"])
    assert cells(report.table([plain]), "mine") != cells(
        report.table([clustered]), "mine"
    )
    assert results.summary(clustered)["standard_error"] == pytest.approx(
        np.sqrt(2 * 2 * 0.25**2) / 4
    )
