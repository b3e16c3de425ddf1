"""Values of expressions by hand, and of those that have none.

Where a reading could differ, the expected value was observed from latex2sympy 1.9.1 and Python.
"""

import math

import pytest

from experiments.evals.benchmarks import latex


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1,234,567", 1234567), ("1.0", 1), (".5", 0.5), ("4/2", 2.0), ("-2^2", -4),
        ("(-2)^2", 4), ("3^2^2", 81), ("2^3!", 40320), ("2^{-1}", 0.5), ("8/2(4)", 1.0),
        ("1/2\\pi", 1 / (2 * math.pi)), ("2\\frac{1}{2}", 1.0),
        ("\\frac{\\sqrt{3}}{2}", math.sqrt(3) / 2), ("\\sqrt[3]{8}", 2.0),
        ("12\\pi-9\\sqrt{3}", 12 * math.pi - 9 * math.sqrt(3)), ("\\log_{2}{8}", 3.0),
        ("\\log 100", 2.0), ("\\sin2\\pi", 0.0), ("\\sin(2)\\pi", math.sin(2) * math.pi),
        ("\\sin^2(1)", math.sin(1) ** 2), ("2e^2", 2 * math.e**2), ("6\\div4", 1.5),
        ("3:4", 0.75), ("2\\cdot-3", -6), ("5\\%", 0.05), ("$7$", 7), ("7}x", 7), ("\\{7\\}", 7),
    ],
)  # fmt: skip
def test_values(text, expected):
    found = latex.value(text)
    assert found == pytest.approx(expected, abs=1e-12)
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "e", "7cm", "7°", "1{,}000", "1,2", "\\frac12", "2^-1", "1+", "(7"),
        *("|3|", "\\ln 2", "\\sqrt{-1}", "1/0", "50%", "\\infty", "9^{9^{9}}"),
        *("200!", "(" * 199 + "1"),
        *("9^{300}" * 3, "-9^{300}" + "9^{300}" * 15, "2.5^{700}2.5^{700}"),
    ],
)
def test_no_value(text):
    assert latex.value(text) is None


def test_without_functions_only_arithmetic_has_values():
    assert latex.value("\\frac{1}{2}+1", functions=False) == 1.5
    for text in ("\\sqrt{4}", "4\\pi", "e^2", "\\log 100"):
        assert latex.value(text) is not None
        assert latex.value(text, functions=False) is None
