"""Maps of the page against hand counts."""

import numpy as np
import pytest
from scipy import stats

from vade_jax.report import charts


@pytest.mark.parametrize(("alpha", "beta"), [(0, 0), (1.7, 8.2), (40, 3), (0, 12)])
def test_the_mass_is_that_of_the_beta_posterior(alpha, beta):
    cdf = stats.beta(alpha + 1, beta + 1).cdf(np.linspace(0, 1, charts.RATES + 1))
    mass = charts.beta_mass([alpha, 0], [beta, 0])
    np.testing.assert_allclose(mass[0], np.diff(cdf), atol=1e-9)
    np.testing.assert_allclose(mass[1], 1 / charts.RATES)  # nothing is known


def test_maps_count_groups(known):
    maps = charts.maps(known)
    observed, subsets = maps["observed"], maps["subsets"]
    assert observed["rows"] == [f"{i} of 4" for i in range(5)]
    assert observed["columns"] == [[step, step] for step in range(1, 7)]
    third = pytest.approx(1 / 3, abs=1e-3)
    assert observed["values"][2] == [third, 0, third, 0, third]  # 0, 4 and 2 right
    assert sorted(subsets["rows"]) == ["color 1", "count 1", "hidden 1"]
    assert np.sum(subsets["values"], 1) == pytest.approx(np.ones(6), abs=2e-3)
    # The first row of the subsets is on top, "0 of 4" at the bottom.
    assert (subsets["up"], observed["up"]) == (False, True)
    # Beta(2, 3) below 0.05: 6 x^2 - 8 x^3 + 3 x^4 at x = 0.05
    assert maps["posterior"]["values"][0][0] == pytest.approx(0.0140, abs=1e-4)
