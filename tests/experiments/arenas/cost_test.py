"""What runs cost and how they compare at equal cost, by hand."""

import numpy as np
import pytest

from experiments.arenas import comparison, cost, records
from vade_jax import settings
from vade_jax.report import curves


def run(seed, scores, *, tokens=None, seconds=2.0):
    """Step k: a validation, 64 answers, `tokens` tokens and `seconds`; nothing before step 1."""
    found = []
    for step, score in enumerate(scores, 1):
        of_step = {"step": step, "val/own/acc/mean@4": score, "vade/rollouts_total": 64 * step}
        of_step |= {"timing_s/step": seconds, "timing_s/gen": 1.5, "timing_s/gen_tail": 0.5}
        of_step |= {"perf/device_seconds": 8 * seconds, "response_length/p99": 100.0 * step}
        if tokens:
            of_step["vade/tokens_total"] = tokens * step
        found.append(of_step)
    config = settings.Run(seed=seed).to_dict()
    return records.Recorded(f"run {seed}", config, found, hopeless=0.1)


# vade: three times the tokens and twice the seconds of uniform's steps.
UNIFORM = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.7, 0.7, 0.7]
VADE = [0.2, 0.4, 0.6, 0.8, 0.9]


def groups():
    return {
        "clean/gspo": {
            "uniform": [run(0, UNIFORM, tokens=100)],
            "vade": [run(0, VADE, tokens=300, seconds=4.0)],
        }
    }


def test_the_costs_of_a_run():
    found = cost.of_run(run(0, VADE, tokens=300, seconds=4.0).records)
    assert found[curves.ROLLOUTS] == 320 and found[curves.TOKENS] == 1500
    assert found["timing_s/gen"] == 7.5 / 60 and found[curves.SECONDS] == 20 / 60
    assert found["perf/device_seconds"] == 160 / 3600 and found["response_length/p99"] == 300
    assert np.isnan(found["timing_s/update_actor"])


def test_at_equal_cost_the_dearer_run_is_read_where_the_cheaper_one_had_spent_as_much():
    """By hand. Of vade's three last validations, or of uniform's where tokens are compared."""
    arm = comparison.compare(groups()).groups["clean/gspo"]["vade"]
    vade, uniform = np.mean(VADE[-3:]), np.mean(UNIFORM[-3:])
    assert arm.equal["steps"].mean == pytest.approx(vade - uniform)
    assert arm.equal["rollouts"].mean == pytest.approx(vade - np.mean(UNIFORM[2:5]))
    at_800_900_1000 = (0.4 + 0.2 * 2 / 3, 0.6, 0.6 + 0.2 / 3)
    assert arm.equal["tokens"].mean == pytest.approx(np.mean(at_800_900_1000) - uniform)
    assert arm.equal["seconds"].mean == pytest.approx(vade - np.mean([0.6, 0.7, 0.7]))
    assert arm.difference == arm.equal["steps"]


def test_a_slower_run_with_the_same_curve_is_as_good_at_equal_answers_and_worse_at_equal_seconds():
    """A second more must cost what is learned in a second, not a whole validation."""
    scores = [0.1, 0.3, 0.5, 0.7]
    one, slower = (curves.validation(run(0, scores, seconds=s).records) for s in (10.0, 10.1))
    assert cost.difference(slower, one, "rollouts") == pytest.approx(0)
    lost = 0.2 * np.mean([2, 3, 4]) * 0.1 / 10.1
    assert cost.difference(slower, one, "seconds") == pytest.approx(-lost)
    assert cost.difference(one, slower, "seconds") == pytest.approx(lost)


def test_without_a_validation_as_early_there_is_no_comparison():
    one = curves.validation(run(0, VADE, tokens=300).records)
    # Its first is at 100 tokens, before that of `one`.
    other = curves.validation(run(0, UNIFORM[:3], tokens=100).records)
    assert np.isnan(cost.difference(one, other, "tokens"))
    unknown = curves.validation(run(0, UNIFORM).records)
    assert np.isnan(cost.difference(one, unknown, "tokens"))


def test_the_validation_before_the_first_step_is_no_late_one():
    """DAPO's runs are short: an untrained policy would count for a third of their accuracy."""
    before = {"step": 0, "val/own/acc/mean@4": 0.0}
    for scores, late in (([0.5, 0.7], 0.6), ([0.1, 0.5, 0.6, 0.7], 0.6)):
        short = curves.validation([before, *run(0, scores).records])
        assert short.steps[0] == 0 and cost.late(short) == pytest.approx(late)


def test_of_a_run_with_fewer_validations_and_its_pair_as_many_are_compared():
    whole = curves.validation(run(0, [0.2, 0.4, 0.6]).records)
    short = curves.validation(run(0, [0.5, 0.9]).records)
    assert cost.difference(short, whole, "steps") == pytest.approx(0.7 - 0.5)
    assert cost.difference(whole, short, "steps") == pytest.approx(0.5 - 0.7)
    assert np.isnan(cost.difference(whole, curves.validation([]), "steps"))


def test_tables_have_what_was_recorded():
    head, (uniform, vade) = cost.table(comparison.compare(groups()).groups["clean/gspo"], "uniform")
    assert "learning, min" not in head and "median length" not in head
    assert dict(zip(head, vade, strict=True)) == {
        "arm": "vade",
        "answers": "320",
        "answer tokens": "1,500",
        "99 % length": "300",
        "generating, min": "0.1",
        "tail, min": "0.0",
        "all steps, min": "0.3",
        "device-hours": "0.04",
        "at equal answers": "+0.367",
        "at equal answer tokens": "-0.100",
        "at equal seconds": "+0.100",
    }
    assert uniform[-3:] == ["", "", ""]
