"""Means over arenas, by hand."""

import pytest

from experiments.arenas import across, comparison
from tests.experiments.arenas.comparison_test import recorded


def late(*values):
    """Validations whose last three are the same."""
    return {seed: [0.1, *[value] * 3] for seed, value in enumerate(values)}


@pytest.fixture
def groups(tmp_path):
    """Two arenas. Arm a has 0.1, 0.2, 0.3 more in one and 0.3, 0.2 in the other; b is in one of them."""
    arms = {
        "one/clean": {"uniform": late(0.2, 0.2, 0.2), "a": late(0.3, 0.4, 0.5)},
        "two/clean": {"uniform": late(0.4, 0.4, 0.4), "a": late(0.7, 0.6), "b": late(0.5)},
    }
    return {
        name: {
            arm: [recorded(tmp_path / name / arm / str(s), s, x) for s, x in of_arm.items()]
            for arm, of_arm in group.items()
        }
        for name, group in arms.items()
    }


def test_a_seeds_mean_over_the_arenas_that_have_it(groups):
    compared = comparison.compare(groups)
    mean = across.seeds_mean(compared, "a")
    # Seed 0: (0.1 + 0.3) / 2, seed 1: (0.2 + 0.2) / 2; seed 2 is in one arena alone.
    assert mean.mean == pytest.approx(0.2) and mean.count == 2
    assert across.seeds_mean(compared, "b").count == 0


def test_a_figure_has_the_arms_beside_the_baseline(groups, tmp_path):
    across.draw(comparison.compare(groups), tmp_path / "across.png")
    assert (tmp_path / "across.png").read_bytes().startswith(b"\x89PNG")
