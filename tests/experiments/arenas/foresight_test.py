"""What a selector knew before it asked, against a loop over all pairs of answers and drawn pass rates."""

import math

import numpy as np
import pytest

from experiments.arenas import foresight, records
from tests.report import report_run


def by_pairs(belief_G, right_G, count_G):
    of = lambda num_G: [b for b, n in zip(belief_G, num_G, strict=True) for _ in range(n)]
    pairs = [(r, w) for r in of(right_G) for w in of(count_G - right_G)]
    return np.mean([(r > w) + (r == w) / 2 for r, w in pairs])


def test_the_area_is_the_share_of_pairs_in_the_right_order_with_ties_at_half():
    rng = np.random.default_rng(0)
    belief_G = rng.choice([0.1, 0.4, 0.4001, 0.9], 30)
    right_G = rng.binomial(6, belief_G)
    count_G = np.full(30, 6)
    expected = by_pairs(belief_G, right_G, count_G)
    assert expected > 0.7
    assert foresight.auroc(belief_G, right_G, count_G) == pytest.approx(expected)
    assert foresight.auroc(np.full(30, 0.3), right_G, count_G) == 0.5
    assert math.isnan(foresight.auroc(belief_G, count_G, count_G))  # none was wrong


def test_perfect_knowledge_comes_to_the_ceiling_and_a_guess_to_nothing():
    rng = np.random.default_rng(1)
    p_G, count_G = rng.beta(0.5, 0.5, 20_000), np.full(20_000, 8)
    right_G = rng.binomial(8, p_G)
    found, ceiling = foresight.correlation(p_G, right_G, count_G)
    # Var p = 1/8 and E[p (1 - p)] = 1/8, an eighth of which is the noise of eight answers.
    assert ceiling == pytest.approx(math.sqrt(8 / 9), abs=0.005)
    assert found == pytest.approx(ceiling, abs=0.005)
    found, _ = foresight.correlation(rng.random(20_000), right_G, count_G)
    assert abs(found) < 0.03
    assert math.isnan(foresight.correlation(np.full(20_000, 0.5), right_G, count_G)[0])


def test_a_ceiling_by_hand():
    """Shares 1, 1/2, 0 of four answers: variance 1/4, noise 1/36, a ninth of it."""
    _, ceiling = foresight.correlation(
        np.array([0.9, 0.5, 0.2]), np.array([4, 2, 0]), np.full(3, 4)
    )
    assert ceiling == pytest.approx(math.sqrt(8 / 9))


def test_parts_share_no_step_and_leave_none_out():
    assert foresight.parts(60) == [(0, 20), (20, 40), (40, 60)]
    assert foresight.parts(40) == [(0, 13), (13, 27), (27, 40)]


def test_a_run_by_thirds_of_its_steps(tmp_path):
    run = records.of_directory(report_run.make(tmp_path))
    assert list(run.foresight) == list(foresight.NAMES)
    assert all(len(values) == foresight.PARTS for values in run.foresight.values())
    assert math.isnan(run.foresight["first_auroc"][1])  # every prompt was asked in step 1
    text = foresight.markdown({"clean/gspo": {"vade": [run], "uniform": []}})
    assert "| vade | second | " in text and "uniform" not in text
    assert " 0.50 | 0.44 |" in text  # forecast, and the mean of 3 / 8 and 4 / 8


def test_without_a_belief_or_a_log_nothing_is_said(tmp_path):
    bare = records.of_directory(report_run.make(tmp_path / "a", belief=False))
    gone = records.of_directory(report_run.make(tmp_path / "b", rollouts=False))
    assert bare.foresight == gone.foresight == {}
    assert foresight.markdown({"clean/gspo": {"vade": [bare, gone]}}) == ""
