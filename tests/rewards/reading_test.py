"""Texts become values: numbers through their dress, and nothing that was not read whole."""

import fractions

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cpu_limit import cpu_limit
from vade_jax.rewards import reading, values
from vade_jax.rewards.values import Number


def number(text):
    found = reading.read(text, numeric=True)
    return found if isinstance(found, Number) else None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", "7"), ("-7", "-7"), ("−7", "-7"), ("+7", "7"), ("- 7", "-7"), ("7.", "7"), (".5", "0.5"),
        ("７", "7"), ("1,234,567", "1234567"), ("1{,}000", "1000"), ("1e3", "1000"), ("$5", "5"),
        ("\\$5", "5"), ("€5", "5"), ("{5}", "5"), ("30°", "30"), ("$5$", "5"), ("1\\,000", "1000"),
        ("30^\\circ", "30"), ("30^{\\circ}", "30"), ("30 degrees", "30"), ("3 cm", "3"),
        ("3cm", "3"), ("3 \\text{cm}^2", "3"), ("4 square units", "4"), ("1 000 000", "1000000"),
        ("\\frac{3}{4}", "3/4"), ("\\dfrac{3}{4}", "3/4"), ("3/4", "3/4"), ("½", "1/2"),
        ("\\approx 2.5", "5/2"), ("\\text{ 12 }", "12"), ("\\mathrm{12}", "12"), ("\\frac72", "7/2"),
        ("\\cfrac{1}{-2}", "-1/2"), ("-\\tfrac12", "-1/2"), ("3\\frac{1}{2}", "7/2"), ("3½", "7/2"),
        ("-3 1/2", "-7/2"), ("0.\\overline{3}", "1/3"), ("2.1\\overline{6}", "13/6"), ("10^6", "1000000"),
        ("1.6 \\times 10^{-2}", "2/125"), ("1.6x10^-2", "2/125"), ("1.6·10⁻²", "2/125"), ("1.6E-2", "2/125"),
        ("2.5M", "2500000"), ("2.5 million", "2500000"), ("40k", "40000"), ("\\$1.2B", "1200000000"),
        ("the answer is 5", "5"), ("5²", "25"), ("2^{10}", "1024"), ("5 apples", "5"),
    ],
)  # fmt: skip
def test_numbers_are_read_through_their_dress(text, value):
    assert number(text).value == fractions.Fraction(value)


@pytest.mark.parametrize(
    "text",
    [
        "", "seven", "1,2", "1.2.3", "3 or 4", "2+3", "12:30", "3x", "1/0", "3/4/5",
        "--5", "1e9999", "inf", "nan", "٣", "5 5", "x=y=5", "9**9**9", "0x10", "x!=5", "about 5",
        "x<=5", "x\\not=5", "0/0", "1/00", "2\\frac{5}{3}", "\\frac123", "5 m/", "5%%", "%5", "7!", "\\sqrt{49}",
        "10^{10^{10}}", "5 per", "4321_5", "1 00", "5 square",
    ],
)  # fmt: skip
def test_what_is_not_one_number_is_none(text):
    assert number(text) is None


def test_percent_is_noted_and_long_integers_stay_exact():
    assert number("50\\%").percent and number("50 %").percent and number("50 percent").percent
    assert number("9" * 60).value - number("9" * 59 + "8").value == 1


PIECES = st.sampled_from([
    "\\frac", "{", "}", "(", ")", "[", "]", "\\{", "\\}", "|", "\\sqrt", "^", "_", "!", "'", "=", "<", "\\in", "\\pm",
    "+", "-", "\\times", "/", "\\sin", "f(", "x", "xy", "ABC", "cm", "per", "square", "\\text{a}", "\\degree", "%", "$",
    "7", ".6", "1,000", "10^", "4_5", "0.\\overline{3}", "\\infty", "\\cup", "\\mathbb", "\\begin{matrix}", "\\end",
    "\\\\", "&", ",", ";", " or ", " ", "\\angle", "\\int", "\\log_", "\\approx", "million", "\\binom",
])  # fmt: skip


@settings(max_examples=500, deadline=5_000, derandomize=True)
@given(text=st.lists(PIECES).map("".join), numeric=st.booleans())
def test_any_text_is_read_or_it_is_not(text, numeric):
    value = reading.read(text, numeric=numeric)
    assert value is None or isinstance(value, values.Value)


@pytest.mark.parametrize(
    "part",
    ["(", "[", "{", "|", "\\{", "1,", "x+", "x ", "\\frac", "\\frac{1}", "\\sqrt", "x^", "f(", "1.", "red, ", "\\angle",
     "\\begin{matrix}", "1 or ", "\\sin", "9!", "-", "cm/", "(1,", "|x|&", "\\text{a}"],
)  # fmt: skip
def test_reading_takes_linear_time(part):
    text = (part * 20_000)[:19_990]
    with cpu_limit(10):
        reading.read(text)
        reading.read(text + "}", numeric=True)
        reading.read(text * 50)


def test_what_takes_too_long_to_calculate_is_not_read():
    for text in (
        "9^{9^{9^9}}",
        "10^{10^{10}}",
        "99999999!",
        "((9!)!)!",
        "2^{9999999}",
        "(x+1)^{100000}",
        "1/(2-2)",
    ):
        assert reading.read(text) is None
