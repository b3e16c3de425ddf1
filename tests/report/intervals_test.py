"""Intervals against scipy's, which integrates, and by hand where nothing can be said."""

import math

import numpy as np
import pytest
from scipy import stats

from vade_jax.report import intervals


@pytest.mark.parametrize("count", [2, 3, 5, 40])
def test_the_interval_is_students(count):
    x = np.random.default_rng(count).normal(3, 2, count)
    found = intervals.mean(x)
    low, high = stats.t.interval(0.95, count - 1, np.mean(x), stats.sem(x))
    assert (found.mean, found.count) == (pytest.approx(np.mean(x)), count)
    assert found.half == pytest.approx((high - low) / 2, rel=1e-6)
    assert intervals.mean(x, 0.5).half < found.half


def test_what_was_not_measured_is_left_out():
    found = intervals.mean([1.0, math.nan, 3.0, math.inf])
    assert (found.mean, found.count) == (2.0, 2)
    assert intervals.mean([]).count == 0 and math.isnan(intervals.mean([]).mean)
    assert math.isnan(intervals.mean([4.0]).half)


def test_text():
    assert intervals.Mean(0.5, 0.25, 3).text() == "0.500 ± 0.250"
    assert intervals.Mean(0.5, 0.25, 3).text(sign=True) == "+0.500 ± 0.250"
    assert intervals.Mean(-0.5, 0.25, 3).text("{:.1f}", sign=True) == "-0.5 ± 0.2"
    assert intervals.Mean(51200, 0.0, 3).text("{:,.0f}") == "51,200"
    assert intervals.mean([0.5]).text() == "0.500"
    assert intervals.mean([]).text() == "-"
