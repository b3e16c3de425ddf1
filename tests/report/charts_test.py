"""Maps and curves of the page against hand counts."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from tests.report.report_run import make
from vade_jax.report import charts, run
from vade_jax.report.run import Group, Log


@pytest.fixture
def log(tmp_path):
    return run.read_log(make(tmp_path))


@pytest.mark.parametrize(("alpha", "beta"), [(0, 0), (1.7, 8.2), (40, 3), (0, 12)])
def test_the_mass_is_that_of_the_beta_posterior(alpha, beta):
    cdf = stats.beta(alpha + 1, beta + 1).cdf(np.linspace(0, 1, charts.RATES + 1))
    mass = charts.beta_mass([alpha, 0], [beta, 0])
    np.testing.assert_allclose(mass[0], np.diff(cdf), atol=1e-9)
    np.testing.assert_allclose(mass[1], 1 / charts.RATES)  # nothing is known


def test_maps_count_groups(log):
    observed = charts.observed(log)
    assert observed["rows"] == [f"{i} of 4" for i in range(5)]
    assert observed["columns"] == [[step, step] for step in range(1, 7)]
    third = pytest.approx(1 / 3, abs=1e-3)
    assert observed["values"][2] == [third, 0, third, 0, third]  # 0, 4 and 2 right
    subsets = charts.subsets(log)
    assert sorted(subsets["rows"]) == ["color 1", "count 1", "hidden 1"]
    assert np.sum(subsets["values"], 1) == pytest.approx(np.ones(6), abs=2e-3)
    # The first row of the subsets is on top, "0 of 4" at the bottom.
    assert (subsets["up"], observed["up"]) == (False, True)
    # Beta(2, 3) below 0.05: 6 x^2 - 8 x^3 + 3 x^4 at x = 0.05
    assert charts.posterior(log)["values"][0][0] == pytest.approx(0.0140, abs=1e-4)


def test_groups_of_different_sizes_share_rows():
    sizes = [(0, 4), (1, 8), (1, 4), (3, 6), (7, 8), (4, 4)]
    found = [Group(1, "a", *size, math.nan, 0, 0) for size in sizes]
    observed = charts.observed(Log(found, {}, {}, []))
    assert observed["rows"][0] == "none" and observed["rows"][-1] == "all"
    assert observed["values"] == [pytest.approx([1 / 6] * 6, abs=1e-3)]


def test_many_steps_share_columns():
    found = [Group(s, "a", 1, 2, math.nan, 0, 0) for s in range(1, 1001)]
    columns = charts.observed(Log(found, {}, {}, []))["columns"]
    assert len(columns) == charts.COLUMNS
    assert columns[0][0] == 1 and columns[-1][1] == 1000
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(columns))


def test_long_curves_are_thinned_evenly(tmp_path):
    one = run.read(make(tmp_path))
    (line,) = charts.dynamics([one], 3)[2]["series"]
    assert (line["step"], line["raw"], line["thinned"]) == ([1, 3, 6], [2, 4, 7], True)
    (cloud,) = charts.calibration([one], 2)["clouds"]
    assert (cloud["x"], cloud["y"]) == ([0.5, 0.5], [0.125, 0.75])
    assert cloud["bias"] == pytest.approx(-0.0625)  # mean of 1/8 .. 6/8, less 0.5
