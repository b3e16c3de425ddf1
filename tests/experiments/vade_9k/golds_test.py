"""Right answers in one form."""

import pytest

from experiments.vade_9k import golds


@pytest.mark.parametrize(
    ("answer", "kind", "choices", "expected"),
    [
        *[(a, "choice", ("x", "y", "z"), "C") for a in ("Answer:C", "(C)", "C. z", "z")],
        ("The answer is: C.", "choice", (), "C"), ("D", "choice", ("4", "4", "4", "4"), "D"),
        ("-1", "choice", ("1", "-1"), "B"), ("x > 3", "choice", ("x < 3", "x > 3"), "B"),
        ("140°", "choice", ("135°", "140°"), "B"), ("Yes.", "yesno", (), "yes"),
        ("1,234", "int", (), "1234"), ("5 cm", "int", (), "5"), ("-7.0", "int", (), "-7"),
        ("$1,234.50", "float", (), "1234.50"), ("50 \\%", "float", (), "50%"),
        ("\\frac{3}{4}", "float", (), "3/4"), ("the answer is +2.5.", "float", (), "2.5"),
        ("The Dog.", "text", (), "The Dog"), ("\\text{red}", "text", (), "red"),
        ("(2007,2008).", "list", (), "(2007,2008)"), ("$[1, 2]$", "list", (), "[1, 2]"),
        ("$2\\sqrt{3}$ cm.", "expr", (), "2\\sqrt{3} cm"),
        ("Answer: 2√3", "expr", (), "2\\sqrt{3}"),
    ],
)  # fmt: skip
def test_a_gold_in_its_form_stays_as_it_is(answer, kind, choices, expected):
    assert golds.normalise(answer, kind, choices=choices) == expected
    assert golds.normalise(expected, kind, choices=choices) == expected


@pytest.mark.parametrize(
    ("answer", "kind", "choices"),
    [
        ("E", "choice", ("x", "y")), ("4.0", "choice", ("4.0", "4.0")), ("w", "choice", ()),
        ("x > 3", "choice", ("x < 3", "4")),
        ("perhaps", "yesno", ()), ("4.5", "int", ()), ("1/0", "float", ()), ("", "text", ()),
        ("a{b", "text", ()), ("?", "text", ()), ("[]", "list", ()), ("[1,,2]", "list", ()),
        ("foo(", "expr", ()), ("\\frac{1}{0}", "expr", ()), ("word " * 50, "text", ()),
        ("9^{9^{9^9}}", "expr", ()), ("7", "number", ()),
    ],
)  # fmt: skip
def test_what_no_answer_could_match_is_refused(answer, kind, choices):
    with pytest.raises(ValueError, match=r"answer=|kind="):
        golds.normalise(answer, kind, choices=choices)
