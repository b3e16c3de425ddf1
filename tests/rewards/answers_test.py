"""Boxes and numbers in nasty text, and which answers have the asked form."""

import pytest

from tests.cpu_limit import cpu_limit
from vade_jax.rewards import answers, reading


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so \\boxed{7}.", "7"), ("\\boxed{3} then \\boxed{4}", "4"),
        ("\\boxed{3} then \\boxed{4", "3"), ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\boxed{3}}", "3"), ("\\boxed {5 }", "5"), ("\\\\boxed{5}", "5"),
        ("\\boxed{\\{1\\}}", "\\{1\\}"), ("} { \\boxed{2} }", "2"), ("{ \\boxed{2}", "2"),
        ("\\boxed{}", None), ("\\boxed{7} in \\boxed{}", "7"), ("\\boxed{a {b}", None), ("\\boxed 7", None), ("boxed{7}", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_last_balanced_box_is_taken(text, expected):
    assert answers.extract_boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Dark-Blue  car.", "dark blue car"), ("\\text{Dark} blue!", "dark blue"),
        ("-5", "-5"), ("2.5 m", "2.5 m"), ("A", "A"), ("x > 5", "x 5"), ("...", ""),
    ],
)  # fmt: skip
def test_words_forget_case_punctuation_and_articles(text, expected):
    assert answers.words(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *(
            "\\boxed{" * 80_000,
            "\\boxed{}" * 80_000,
            "\\boxed{7}, " * 40_000,
            "{" * 400_000,
            "\\" * 400_000,
        ),
        *("\\boxed" + " " * 400_000, "\\boxed{" + "1" * 400_000 + "}"),
    ],
)
def test_adversarial_text_takes_linear_time(text):
    """Its square would be 10^11 characters, an hour of work."""
    with cpu_limit(20):
        answers.extract_boxed(text)


@pytest.mark.parametrize("part", ["1,", " ", "\\text{", "^", "{", "$", "\\frac{1}", "."])
def test_answers_far_longer_than_allowed_are_read(part):
    """A pattern that goes back and forth would take for ever."""
    text = (part * 100 * answers.MAX_LENGTH)[: 100 * answers.MAX_LENGTH]
    with cpu_limit(10):
        reading.read(text + "!", numeric=True)
        answers.words(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{3}, \\boxed{5}, and \\boxed{7}.", "3, 5, 7"), ("$x=\\boxed{2}$ or $x=\\boxed{3}$", "2 or 3"),
        ("\\boxed{1}、\\boxed{2}和\\boxed{3}", "1, 2, 3"), ("\\boxed{3} \\text{ and } \\boxed{5}", "3, 5"),
        ("\\boxed{1}, \\boxed{2}. No: \\boxed{3} or \\boxed{4}", "3 or 4"), ("\\boxed{3} not \\boxed{5}", "5"),
        ("\\boxed{3} \\boxed{5}", "5"), ("\\boxed{3}, and since this is so, \\boxed{5}", "5"),
        ("\\boxed{3}, \\boxed{}, \\boxed{5}", "5"), ("\\boxed{**3**}", "3"), ("\\boxed{`a`}", "a"), ("\\boxed{2**3}", "2**3"),
    ],
)  # fmt: skip
def test_boxes_that_only_a_comma_or_a_word_joins_are_one_list(text, expected):
    assert answers.extract_boxed(text) == expected


# ------------------------------------------------------------------------------ form
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{7}", True), ("It is \\boxed{7}.\n", True), ("$\\boxed{\\frac{1}{2}}$", True),
        ("\\[\\boxed{7}\\]", True), ("\\boxed{7} is it", False),
        ("\\boxed{7}\\boxed{8}", False), ("\\boxed{\\boxed{7}}", False),
        ("\\boxed{7} \\boxed{8", False), ("\\boxed{ }", False), ("\\boxed{7", False),
        ("7", False), ("**\\boxed{7}**", True), ("\\boxed{7}!", True), ("\\boxed{7}。", True), ("\\boxed{7} ✅", True),
        ("\\boxed{7}, \\boxed{8}", True), ("\\boxed{6}. So \\boxed{7}, \\boxed{8}", False), ("\\boxed{7} ?", False),
        ("\\boxed{7} 或 8", False), ("\\boxed{7} = 8", False), ("\\boxed{7}, \\boxed{}", False),
    ],
)  # fmt: skip
def test_boxed_is_one_answer_at_the_end(text, expected):
    assert answers.boxed(text) == expected


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
    assert answers.think_boxed(text) == expected
