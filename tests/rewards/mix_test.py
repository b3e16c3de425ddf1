"""The mix of correctness and format."""

import subprocess
import sys

import pytest

from vade_jax.rewards import mix, verify


@pytest.mark.parametrize(
    ("correct", "well_formed", "weight", "expected"),
    [
        (True, True, 0.1, 1.0),
        (True, False, 0.1, 0.9),
        (False, True, 0.1, 0.1),
        (False, False, 0.1, 0.0),
        (False, True, 0.0, 0.0),
    ],
)
def test_reward(correct, well_formed, weight, expected):
    verdict = verify.Verdict(correct, well_formed, "7", "")
    assert mix.reward(verdict, format_weight=weight) == pytest.approx(expected)


def test_a_weight_outside_the_unit_interval_is_refused():
    with pytest.raises(ValueError, match="format_weight=2"):
        mix.reward(verify.Verdict(True, True, "7", "ok"), format_weight=2)


def test_rewards_do_without_jax():
    code = "import sys, vade_jax.rewards.mix; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
