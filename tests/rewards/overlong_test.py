"""Eq. 13 of arXiv 2503.14476, by hand."""

import pytest

from vade_jax.rewards import overlong


@pytest.mark.parametrize(
    ("length", "cost"),
    [(1, 0), (16383, 0), (16384, 0), (16385, -1 / 4096), (17408, -0.25), (20480, -1)],
)
def test_the_papers_lengths(length, cost):
    assert overlong.penalty(length, 20480, 4096) == cost


def test_all_lengths_of_a_short_limit():
    costs = [overlong.penalty(length, 8, 4) for length in range(11)]
    assert costs == [0, 0, 0, 0, 0, -0.25, -0.5, -0.75, -1, -1, -1]


def test_a_buffer_of_one_costs_only_the_cut_off():
    assert [overlong.penalty(length, 8, 1) for length in (6, 7, 8)] == [0, 0, -1]


def test_no_buffer_costs_nothing():
    assert [overlong.penalty(length, 8, 0) for length in (7, 8, 9)] == [0, 0, 0]


@pytest.mark.parametrize("buffer", [-1, 8, 9])
def test_a_buffer_as_long_as_the_answer_is_refused(buffer):
    with pytest.raises(ValueError, match=rf"buffer={buffer} must be in 0 .. 7"):
        overlong.penalty(3, 8, buffer)
