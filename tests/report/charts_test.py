"""Maps and curves of the page against hand counts."""

import itertools
import math
import pathlib

import numpy as np
import pytest
from scipy import stats

from vade_jax.report import charts, headline
from vade_jax.report.run import Group, Run


def run_of(groups):
    """Returns a run of groups of (step, right, count)."""
    groups = [Group(step, "a", right, count, math.nan, 0, 0) for step, right, count in groups]
    return Run(pathlib.Path(), groups=groups)


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


def test_groups_of_different_sizes_share_rows_and_many_steps_columns():
    sizes = [(0, 4), (1, 8), (1, 4), (3, 6), (7, 8), (4, 4)]
    observed = charts.observed(run_of([(1, *size) for size in sizes]))
    assert observed["rows"][0] == "none" and observed["rows"][-1] == "all"
    assert observed["values"] == [pytest.approx([1 / 6] * 6, abs=1e-3)]
    columns = charts.observed(run_of([(step, 1, 2) for step in range(1, 1001)]))["columns"]
    assert len(columns) == charts.COLUMNS
    assert columns[0][0] == 1 and columns[-1][1] == 1000
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(columns))


def test_the_ratio_is_the_one_that_the_page_gives_in_numbers():
    line = {"vade/trained_effective_ratio_correct": 0.25, "vade/effective_ratio": 0.75}
    run = Run(pathlib.Path(), records=[{"step": 1, **line}])
    assert charts.dynamics([run], 9)[0]["series"][0]["y"] == [0.25]
    (fact,) = (fact for fact in headline.facts(run) if fact.name == "Effective ratio")
    assert fact.value == "0.25"


def test_long_curves_are_thinned_evenly(known):
    (line,) = charts.dynamics([known], 3)[3]["series"]
    assert (line["step"], line["raw"], line["thinned"]) == ([1, 3, 6], [2, 4, 7], True)
    (cloud,) = charts.calibration([known], 2)["clouds"]
    assert (cloud["x"], cloud["y"]) == ([0.5, 0.5], [0.125, 0.75])
    assert cloud["bias"] == pytest.approx(-0.0625)  # mean of 1/8 .. 6/8, less 0.5
