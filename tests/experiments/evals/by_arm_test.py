"""Seeds together, arms beside their baseline, and which runs of a sweep are taken."""

import numpy as np
import pytest

from configs import arms as arms_of_sweeps
from configs import tiny
from experiments.evals import by_arm
from tests.experiments.evals.scored import CORRECT, result

NONE = np.zeros_like(CORRECT)


def test_seeds_are_more_answers_to_the_same_questions():
    one, two = {"chartqa": result(counts={"missing": 1})}, {"chartqa": result(correct=NONE)}
    two["chartqa"] = result(correct=NONE, counts={"missing": 2})
    both = by_arm.pooled([one, two | {"mathvista": result("mathvista")}])
    assert list(both) == ["chartqa"]
    found = both["chartqa"]
    np.testing.assert_array_equal(found.correct_MG, np.hstack([CORRECT, NONE]))
    assert found.extracted[0] == ["1", None, "1", None] and found.counts == {"missing": 3}


def test_arms_beside_their_baseline_in_seeds_that_both_have(tmp_path):
    right, wrong = ({"chartqa": result(correct=x)} for x in (np.ones_like(CORRECT), NONE))
    arms = {
        "uniform": {0: wrong, 1: {"chartqa": result()}},
        "vade": {1: right, 2: wrong},
        "vade_greedy": {2: right},
        "kalman": {7: right},
    }
    options = {"baseline": "uniform", "size": "7B", "seed": 0}
    text = by_arm.write(str(tmp_path), {"clean/grpo": arms}, None, **options)
    assert (tmp_path / "tables.md").read_text() == text
    first, second, gaps = text.split("# ")[1:]
    assert "VADE + GRPO 7B (paper)" in first and "last update 7B (paper)" in second
    assert "| uniform + GRPO |" in first and "vade_greedy" not in first
    assert "| vade + GRPO |" in second and "| vade_greedy + GRPO |" in second
    # seed 1 alone: 100 % against 62.5 %; VADE's variants are compared with VADE, in seed 2
    assert "| vade + GRPO minus uniform + GRPO | +37.50 [" in gaps
    assert "| vade_greedy + GRPO minus vade + GRPO | +100.00 [+100.00, +100.00] | 1 |" in gaps
    assert "kalman" not in gaps


def test_tables_say_how_many_seeds_a_row_has(tmp_path):
    one = {"chartqa": result()}
    arms = {"uniform": dict.fromkeys((0, 1, 2), one), "vade": {0: one}, "vade_mean": {4: one}}
    options = {"baseline": "uniform", "size": "7B", "seed": 0}
    text = by_arm.write(str(tmp_path), {"clean/gspo": arms}, one, **options)
    first, second, _ = text.split("# ")[1:]
    for row, cell in {"base": "", "base 7B (paper)": "", "uniform + GSPO": "3"}.items():
        (line,) = (line for line in first.splitlines() if line.startswith(f"| {row} |"))
        assert line.split("|")[-2].strip() == cell
    for table in (first, second):
        assert "| AVG | seeds |\n" in table and "Answers an item and seed: chartqa 2." in table
        assert "do not say how much another training run would differ" in table


def test_ablations_alone_are_compared_with_vade(tmp_path):
    assert set(by_arm.ABLATIONS) == set(arms_of_sweeps.variants(tiny.base(None)))
    names = ("uniform", "vade", "vade_dapo", "vade_measured", "vade_mean", "vade_mean@5e-5")
    arms = {arm: {0: {"chartqa": result()}} for arm in (*names, "vade@5e-5")}
    options = {"baseline": "uniform", "size": "", "seed": 0}
    text = by_arm.write(str(tmp_path), {"clean/gspo": arms}, None, **options)
    first, second, gaps = text.split("# ")[1:]
    for arm in ("vade_dapo", "vade_measured"):
        assert f"| {arm} + GSPO |" in first and arm not in second
        assert f"| {arm} + GSPO minus uniform + GSPO |" in gaps
    assert "vade_mean" not in first and "| vade + GSPO |" in second
    assert "| vade_mean + GSPO minus vade + GSPO |" in gaps
    assert "| vade_mean@5e-5 + GSPO minus vade@5e-5 + GSPO |" in gaps


def test_differences_of_every_benchmark_and_of_what_was_not_made_alike(tmp_path):
    cold, warm = ({"sampling": {"temperature": t}} for t in (0.0, 1.0))
    arms = {
        "uniform": {0: {"mmk12": result("mmk12", settings=cold), "chartqa": result()}},
        "vade": {0: {"mmk12": result("mmk12", settings=warm), "chartqa": result()}},
    }
    options = {"baseline": "uniform", "size": "", "seed": 0}
    text = by_arm.write(str(tmp_path), {"clean/gspo": arms}, None, **options)
    gaps = text.partition("# Differences\n\n")[2]
    assert gaps.startswith("|  | chartqa | mmk12 | seeds |\n")
    assert gaps.endswith(
        "- vade + GSPO minus uniform + GSPO: mmk12 was not made alike: sampling.temperature\n"
    )


def test_finished_runs_alone(tmp_path, capsys):
    with pytest.raises(ValueError, match="no finished run: give the --workdir of an experiments"):
        by_arm.policies(str(tmp_path))
    for name in ("clean/gspo/vade_p1p_seed3", "clean/gspo/uniform_seed0"):
        (tmp_path / name / "policy").mkdir(parents=True)
    (tmp_path / "clean/gspo/vade_p1p_seed3/policy/config.json").touch()
    (found,) = by_arm.policies(str(tmp_path))
    assert (found.group, found.arm, found.seed) == ("clean/gspo", "vade_p1p", 3)
    assert found.name == "clean/gspo/vade_p1p_seed3"
    assert "left out: uniform_seed0" in capsys.readouterr().out
