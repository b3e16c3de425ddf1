"""What runs cost and how they compare at equal cost, by hand."""

import numpy as np
import pytest

from experiments.arenas import comparison, cost
from tests.experiments.arenas.made import recorded
from vade_jax.report import curves


def run(scores, *, tokens=None, seconds=2.0):
    """Step k: a validation, 64 answers, `tokens` tokens and `seconds`; nothing before step 1."""
    of_step = {"timing_s/step": seconds, "timing_s/gen": 1.5, "timing_s/gen_tail": 0.5}
    of_step |= {"perf/device_seconds": 8 * seconds, "response_length/p99": lambda k: 100.0 * k}
    if tokens:
        of_step["vade/tokens_total"] = lambda step: tokens * step
    return recorded(0, scores, range(1, len(scores) + 1), **of_step)


def curve(*args, **more):
    return curves.validation(run(*args, **more).records)


# vade: three times the tokens and twice the seconds of uniform's steps.
UNIFORM = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.7, 0.7, 0.7]
VADE = [0.2, 0.4, 0.6, 0.8, 0.9]
ARMS = {"uniform": [run(UNIFORM, tokens=100)], "vade": [run(VADE, tokens=300, seconds=4.0)]}


def test_at_equal_cost_the_dearer_run_is_read_where_the_cheaper_one_had_spent_as_much():
    """By hand. Of vade's three last validations, or of uniform's where tokens are compared."""
    arm = comparison.compare({"g": ARMS}).groups["g"]["vade"]
    vade, uniform = np.mean(VADE[-3:]), np.mean(UNIFORM[-3:])
    assert arm.equal["steps"].mean == pytest.approx(vade - uniform)
    assert arm.equal["rollouts"].mean == pytest.approx(vade - np.mean(UNIFORM[2:5]))
    at_800_900_1000 = (0.4 + 0.2 * 2 / 3, 0.6, 0.6 + 0.2 / 3)
    assert arm.equal["tokens"].mean == pytest.approx(np.mean(at_800_900_1000) - uniform)
    assert arm.equal["seconds"].mean == pytest.approx(vade - np.mean([0.6, 0.7, 0.7]))
    assert arm.means["difference"] == arm.equal["steps"]


def test_a_slower_run_with_the_same_curve_is_as_good_at_equal_answers_and_worse_at_equal_seconds():
    """A second more must cost what is learned in a second, not a whole validation."""
    one, slower = (curve([0.1, 0.3, 0.5, 0.7], seconds=s) for s in (10.0, 10.1))
    assert cost.difference(slower, one, "rollouts") == pytest.approx(0)
    lost = 0.2 * np.mean([2, 3, 4]) * 0.1 / 10.1
    assert cost.difference(slower, one, "seconds") == pytest.approx(-lost)
    assert cost.difference(one, slower, "seconds") == pytest.approx(lost)


def test_the_validation_before_the_first_step_is_no_late_one():
    """DAPO's runs are short: an untrained policy would count for a third of their accuracy."""
    before = {"step": 0, "val/own/acc/mean@4": 0.0}
    for scores, late in (([0.5, 0.7], 0.6), ([0.1, 0.5, 0.6, 0.7], 0.6)):
        short = curves.validation([before, *run(scores).records])
        assert short.steps[0] == 0 and cost.late(short) == pytest.approx(late)
