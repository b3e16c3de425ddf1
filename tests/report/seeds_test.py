"""Means over seeds and their intervals, by hand."""

import math

import pytest

from vade_jax.report import seeds


@pytest.mark.parametrize(
    ("values", "level", "half"),
    [  # the standard error times the quantile of Student's t in the tables
        ([1.0, 3.0], 0.95, 1 * 12.706),
        ([1.0, 3.0], 0.5, 1 * 1.0),
        ([1.0, 2.0, 3.0], 0.95, 3**-0.5 * 4.3027),
        ([1.0, math.nan, 3.0, math.inf], 0.95, 12.706),  # what is finite
        ([4.0, 4.0, 4.0], 0.95, 0),
    ],
)
def test_the_interval_is_students(values, level, half):
    found = seeds.mean(values, level)
    assert found.half == pytest.approx(half, rel=1e-4)
    finite = [x for x in values if math.isfinite(x)]
    assert (found.mean, found.count) == (sum(finite) / len(finite), len(finite))


def test_differences_are_of_the_seeds_that_both_have():
    assert seeds.differences({0: 3.0, 2: 5.0}, {2: 1.0, 1: 0.0}) == [4.0]
