"""Which answers have the asked form."""

import pytest

from vade_jax.rewards import formats


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{7}", True),
        ("It is \\boxed{7}.\n", True),
        ("$\\boxed{\\frac{1}{2}}$", True),
        ("\\[\\boxed{7}\\]", True),
        ("\\boxed{7} is it", False),
        ("\\boxed{7}\\boxed{8}", False),
        ("\\boxed{\\boxed{7}}", False),
        ("\\boxed{7} \\boxed{8", False),
        ("\\boxed{ }", False),
        ("\\boxed{7", False),
        ("7", False),
    ],
)
def test_boxed_is_one_box_at_the_end(text, expected):
    assert formats.boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>1 + 1</think> \\boxed{2}", True),
        ("\n<think>\\boxed{1}?\nno</think>\nSo \\boxed{2}.", True),
        ("<think></think>\\boxed{2}", True),
        ("<think>1 + 1 \\boxed{2}</think>", False),
        ("1 <think>1 + 1</think> \\boxed{2}", False),
        ("<think>a</think><think>b</think> \\boxed{2}", False),
        ("</think><think> \\boxed{2}", False),
        ("\\boxed{2}", False),
    ],
)
def test_think_boxed_is_reasoning_and_then_one_box(text, expected):
    assert formats.think_boxed(text) == expected
