"""Curves, averages and intervals by hand arithmetic."""

import numpy as np
import pytest

from vade_jax.report import curves


def records(**columns):
    """Returns a record a step, from step 1; `ratio=[...]` is the effective ratio and so on."""
    name = {
        "ratio": curves.EFFECTIVE,
        "correct": curves.EFFECTIVE_CORRECT,
        "predicted": curves.PREDICTED,
        "rollouts": curves.ROLLOUTS,
        "forgotten": curves.FORGOTTEN,
    }
    rows = zip(*columns.values(), strict=True)
    return [
        {"step": step, **{name[k]: v for k, v in zip(columns, row, strict=True)}}
        for step, row in enumerate(rows, start=1)
    ]


# ------------------------------------------------------------------------------ of one run
def test_moving_average():
    assert curves.moving_average(np.arange(39.0)).tolist() == [*range(39)]  # over one point
    values = np.arange(40.0) ** 2
    mean = curves.moving_average(values)
    assert mean[0] == 0.5  # (0 + 1) / 2
    assert mean[1] == pytest.approx(5 / 3)  # (0 + 1 + 4) / 3
    assert mean[-1] == (38**2 + 39**2) / 2


def test_a_curve_leaves_out_what_is_not_finite_and_knows_its_rollouts():
    curve = curves.named(records(ratio=[0.5, None, 0.25], rollouts=[8, 16, 24]), curves.EFFECTIVE)
    assert [x.tolist() for x in curve.against("steps")] == [[1, 3], [0.5, 0.25]]
    assert [x.tolist() for x in curve.against("rollouts")] == [[8, 24], [0.5, 0.25]]


def test_seconds_add_up_and_what_was_not_recorded_is_no_axis():
    found = [{"step": 0, curves.REWARD: 0.1}]
    found += [{"step": s, curves.REWARD: 0.1 * s, curves.SECONDS: 1.5 * s} for s in (1, 2)]
    curve = curves.named(found, curves.REWARD)
    assert curve.spent.keys() == {"seconds"}
    assert curve.against("seconds")[0].tolist() == [0, 1.5, 4.5]
    assert not curve.against("tokens")[0].size


def test_validation_is_the_mean_over_sets_where_all_are_known():
    a, b, first = "val/a/acc/mean@4", "val/b/acc/mean@4", "val/a/acc/mean@1"
    records = [
        {"step": 0, a: 0.25, b: 0.5, first: 0.0},  # of one set, the one of most samples
        {"step": 1, curves.ROLLOUTS: 64},
        {"step": 2, curves.ROLLOUTS: 128, a: 0.2, b: 0.4},
        {"step": 3, a: 1.0},
        {"step": 4, a: 0, b: None},
        {"step": 9, a: 0.5, b: 0.5},
    ]
    assert curves.validation_names(records) == [a, b]
    curve = curves.validation(records)
    assert curve.steps.tolist() == [0, 2, 9]
    assert curve.values == pytest.approx([0.375, 0.3, 0.5])
    assert curve.spent["rollouts"].tolist() == [0, 128, 128]  # the last count known
    assert not curves.validation(records[1:2]).values.size


def test_prediction_is_held_against_correctness_where_both_are_known():
    both = records(predicted=[0.5, None], ratio=[0.9, 0.9], correct=[0.4, 0.4])
    pair = curves.predicted_and_observed([{"step": 0}, *both])
    assert [x.tolist() for x in pair] == [[0.5], [0.4]]
    pair = curves.predicted_and_observed(records(predicted=[0.5], ratio=[0.9]))
    assert [x.tolist() for x in pair] == [[0.5], [0.9]]


def test_bins_have_equally_many_points():
    x = np.array([9.0, 0, 1, 2, 3, 4, 5, 6, 7, 8])  # 10 points: two bins of 5
    assert [m.tolist() for m in curves.binned(x, 2 * x)] == [[2, 7], [4, 14]]


def test_a_forecast_is_judged_by_its_error_and_its_bias():
    found = curves.forecast_error(np.array([0.5, 0.5]), np.array([0.75, 0.375]))
    assert found == (0.1875, 0.0625)  # (0.25 + 0.125) / 2, (0.25 - 0.125) / 2


def test_quarters_and_spikes():
    assert curves.quarters(np.arange(8.0)) == (0.5, 6.5)
    assert curves.quarters(np.array([3.0])) == (3.0, 3.0)
    assert curves.has_spikes(np.array([1.0, 1, 21]))
    for values in ([1, 1, 20], [0, 0, 5], []):
        assert not curves.has_spikes(np.array(values))


def test_the_effective_ratio_is_the_papers_where_it_was_recorded():
    """Of the groups trained on; of older runs what they have."""
    names = [curves.EFFECTIVE, curves.EFFECTIVE_CORRECT, curves.EFFECTIVE_TRAINED]
    for known in (1, 2, 3):
        record = {"step": 1} | {name: 0.1 * n for n, name in enumerate(names[:known], 1)}
        assert curves.effective([{"step": 0}, record]).values == [0.1 * known]
