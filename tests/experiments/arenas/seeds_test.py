"""Means over seeds and their intervals: by hand, and how often they hold the mean."""

import math

import numpy as np
import pytest

from experiments.arenas import seeds


@pytest.mark.parametrize(
    ("values", "half"),
    [  # the standard error times the quantile of Student's t in the tables
        ([1.0, 3.0], 1 * 12.706),
        ([1.0, 2.0, 3.0], 3**-0.5 * 4.3027),
        ([1.0, math.nan, 3.0, math.inf], 12.706),  # what is finite
        ([4.0, 4.0, 4.0], 0),
    ],
)
def test_the_interval_of_few_seeds_is_students(values, half):
    found = seeds.mean(values)
    assert found.half == pytest.approx(half, rel=1e-4)
    finite = [x for x in values if math.isfinite(x)]
    assert (found.mean, found.count) == (sum(finite) / len(finite), len(finite))


@pytest.mark.parametrize("count", [8, 12, 24])
@pytest.mark.parametrize("share", [0.0, 0.08, 0.25])
def test_the_interval_holds_the_mean_although_some_runs_unlearn(count, share):
    """Differences of pairs as in frontier: a deviation of 0.03, and accidents that cost .06 to .15."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 0.03, (1000, count))
    x -= (rng.random(x.shape) < share) * rng.uniform(0.06, 0.15, x.shape)
    found = [seeds.mean(of) for of in x]
    held = np.mean([abs(one.mean + share * 0.105) <= one.half for one in found])
    assert 0.92 <= held <= 0.985


def test_equal_values_but_one_have_a_finite_interval():
    # Of the resamples, 0.35 leave the last one out: their distance is the mean, at a third of the error.
    assert seeds.mean([0.0] * 11 + [0.12]).half == pytest.approx(0.03)


def test_a_share_has_wilsons_interval():
    assert seeds.share([0, 0, 1, math.nan]) == "1/3 (6–79 %)"
    assert seeds.share([0] * 24) == "0/24 (0–14 %)"
    assert seeds.share([math.nan]) == "-"
