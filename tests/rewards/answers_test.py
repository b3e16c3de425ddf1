"""Boxes and numbers in nasty text, and which answers have the asked form."""

import decimal

import pytest

from tests.cpu_limit import cpu_limit
from vade_jax.rewards import answers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("so \\boxed{7}.", "7"), ("\\boxed{3} then \\boxed{4}", "4"),
        ("\\boxed{3} then \\boxed{4", "3"), ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{\\boxed{3}}", "3"), ("\\boxed {5 }", "5"), ("\\\\boxed{5}", "5"),
        ("\\boxed{\\{1\\}}", "\\{1\\}"), ("} { \\boxed{2} }", "2"), ("{ \\boxed{2}", "2"),
        ("\\boxed{}", ""), ("\\boxed{a {b}", None), ("\\boxed 7", None), ("boxed{7}", None),
        ("", None),
    ],
)  # fmt: skip
def test_the_last_balanced_box_is_taken(text, expected):
    assert answers.extract_boxed(text) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", "7"), ("-7", "-7"), ("−7", "-7"), ("+7", "7"), ("7.", "7"), (".5", "0.5"),
        ("７", "7"), ("1,234,567", "1234567"), ("1{,}000", "1000"), ("1e3", "1000"), ("$5", "5"),
        ("\\$5", "5"), ("€5", "5"), ("{5}", "5"), ("x = 5", "5"), ("30°", "30"),
        ("30^\\circ", "30"), ("30^{\\circ}", "30"), ("30 degrees", "30"), ("3 cm", "3"),
        ("3cm", "3"), ("3 \\text{cm}^2", "3"), ("4 square units", "4"),
        ("\\frac{3}{4}", "0.75"), ("\\dfrac{3}{4}", "0.75"), ("3/4", "0.75"),
        ("\\approx 2.5", "2.5"), ("\\text{ 12 }", "12"), ("\\mathrm{12}", "12"),
    ],
)  # fmt: skip
def test_numbers_are_read_through_their_dress(text, value):
    assert answers.number(text) == (decimal.Decimal(value), False)


@pytest.mark.parametrize(
    "text",
    [
        "", "seven", "5 million", "1,2", "1.2.3", "3 or 4", "5²", "2+3", "12:30", "3x", "1/0",
        "--5", "1e9999", "inf", "nan", "٣", "5 5", "x=y=5", "9**9**9", "0x10", "3=7", "x!=5",
        "x<=5", "x\\not=5", "3\\frac{1}{2}", "3 \\frac{1}{2}", "0/0", "1/00",
    ],
)  # fmt: skip
def test_what_is_not_one_number_is_none(text):
    assert answers.number(text) is None


def test_percent_is_noted_and_long_integers_stay_exact():
    assert answers.number("50\\%") == answers.number("50 %") == (50, True)
    first, second = answers.number("9" * 60), answers.number("9" * 59 + "8")
    assert first[0] != second[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$2√3$", "2\\sqrt{3}"), ("√(x+1).", "\\sqrt{x+1}"), ("60°", "60"),
        ("\\left( 1,2 \\right)", "( 1,2 )"), ("50%", "50\\%"), ("50\\%", "50\\%"),
        ("3×4", "3\\times 4"), ("x²", "x^{2}"), ("2pi", "2\\pi"), ("1\\\\ 2", "1\\\\ 2"),
        ("−5", "-5"), ("spin", "spin"), ("1{,}000", "1,000"),
    ],
)  # fmt: skip
def test_a_formula_is_plain_latex(text, expected):
    assert answers.formula(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Dark-Blue  car.", "dark blue car"), ("\\text{Dark} blue!", "dark blue"),
        ("-5", "-5"), ("2.5 m", "2.5 m"), ("A", "a"), ("...", ""),
    ],
)  # fmt: skip
def test_words_forget_case_punctuation_and_articles(text, expected):
    assert answers.words(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("\\boxed{" * 80_000, "\\boxed{}" * 80_000, "{" * 400_000, "\\" * 400_000),
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
        answers.number(text + "!")
        answers.words(text)


# ------------------------------------------------------------------------------ form
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{7}", True), ("It is \\boxed{7}.\n", True), ("$\\boxed{\\frac{1}{2}}$", True),
        ("\\[\\boxed{7}\\]", True), ("\\boxed{7} is it", False),
        ("\\boxed{7}\\boxed{8}", False), ("\\boxed{\\boxed{7}}", False),
        ("\\boxed{7} \\boxed{8", False), ("\\boxed{ }", False), ("\\boxed{7", False),
        ("7", False),
    ],
)  # fmt: skip
def test_boxed_is_one_box_at_the_end(text, expected):
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
