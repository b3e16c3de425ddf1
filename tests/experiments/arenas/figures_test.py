"""The curves of a sweep: means over seeds."""

import numpy as np

from experiments.arenas import figures


def test_a_band_is_the_mean_and_its_standard_error_where_all_have_points():
    one = (np.array([0, 2]), np.array([0.0, 2.0]))
    two = (np.array([0, 2]), np.array([2.0, 6.0]))
    x, mean, error = figures.band([one, two])
    assert x.tolist() == [0, 2] and mean.tolist() == [1.0, 4.0]
    # sqrt(2) / sqrt(2), sqrt(8) / sqrt(2)
    np.testing.assert_allclose(error, [1.0, 2.0])
    long = (np.array([1, 2, 5]), np.array([3.0, 4.0, 9.0]))
    x, mean, _ = figures.band([one, long, (np.zeros(0), np.zeros(0))])
    assert x.tolist() == [1, 2]  # 0 is before the second, 5 behind the first
    assert mean.tolist() == [2.0, 3.0]  # (1 + 3) / 2, (2 + 4) / 2
    assert figures.band([one])[2].tolist() == [0.0, 0.0]
    assert [len(values) for values in figures.band([])] == [0, 0, 0]
