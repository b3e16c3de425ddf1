"""The mix of correctness and format, and Eq. 13 of arXiv 2503.14476 by hand."""

import subprocess
import sys

import pytest

from vade_jax.rewards import functions, verify


@pytest.mark.parametrize(
    ("correct", "well_formed", "weight", "expected"),
    [
        (True, True, 0.1, 1.0), (True, False, 0.1, 0.9), (False, True, 0.1, 0.1),
        (False, False, 0.1, 0.0), (False, True, 0.0, 0.0),
    ],
)  # fmt: skip
def test_reward(correct, well_formed, weight, expected):
    verdict = verify.Verdict(correct, well_formed, "7", "")
    assert functions.reward(verdict, format_weight=weight) == pytest.approx(expected)


def test_rewards_do_without_jax():
    code = (
        "import sys\n"
        "from vade_jax.rewards import functions, servers, trial, verify\n"
        "assert verify.verify(r'\\boxed{\\frac{1}{2}}', '0.5', 'float').correct\n"
        "print(sorted({'jax', 'jaxlib', 'flax', 'torch'} & set(sys.modules)))"
    )
    said = subprocess.check_output([sys.executable, "-c", code], timeout=60, text=True)
    assert said == "[]\n"


@pytest.mark.parametrize(
    ("max_tokens", "buffer", "lengths", "costs"),
    [  # the first are the paper's
        (20480, 4096, (1, 16384, 16385, 17408, 20480), (0, 0, -1 / 4096, -0.25, -1)),
        (8, 4, range(11), (0, 0, 0, 0, 0, -0.25, -0.5, -0.75, -1, -1, -1)),
        (8, 1, (6, 7, 8), (0, 0, -1)),  # only what was cut off
        (8, 0, (7, 8, 9), (0, 0, 0)),
    ],
)
def test_overlong_answers_cost(max_tokens, buffer, lengths, costs):
    found = [functions.overlong_penalty(length, max_tokens, buffer) for length in lengths]
    assert found == list(costs)
