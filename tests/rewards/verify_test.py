"""Verdicts on whole answers, and right answers in one form."""

import pytest

from vade_jax import types
from vade_jax.rewards import verify


def _verdict(given, answer, kind, **kwargs):
    return verify.verify(f"\\boxed{{{given}}}", answer, kind, **kwargs)


def test_without_a_box_nothing_is_correct():
    verdict = verify.verify("The answer is 7", "7", "int")
    assert verdict == verify.Verdict(False, False, None, "no_box")
    assert verify.verify("\\boxed{" + "7" * 201 + "}", "7", "int").reason == "too_long"


def test_a_guess_among_the_thoughts_is_no_answer():
    later = r"<think>maybe \boxed{5}? No.</think> The answer is \boxed{6}."
    assert verify.verify(later, "6", "int").correct and not verify.verify(later, "5", "int").correct
    for text in (
        r"<think>a</think> so <think>maybe \boxed{5}",
        r"<think>maybe \boxed{5}? No.</think> It is 6.",
        r"<think>maybe \boxed{5}? No, it must be",
    ):
        assert verify.verify(text, "5", "int").reason == "no_box"
    assert verify.verify(r"Opened by the template.</think> \boxed{5}", "5", "int").correct


def test_form_and_correctness_are_apart():
    verdict = verify.verify("\\boxed{1} \\boxed{7}", "7", "int")
    assert verdict.correct and not verdict.well_formed and verdict.extracted == "7"
    assert _verdict("8", "7", "int").well_formed
    assert not _verdict("7", "7", "int", form="think_boxed").well_formed


def test_an_item_brings_its_tolerance_and_choices():
    item = types.Item(
        uid="u",
        question="",
        images=(),
        answer="10",
        kind="float",
        metadata={"tolerance": 0.05},
    )
    assert verify.verify_item("\\boxed{10.4}", item).correct
    assert not verify.verify_item("\\boxed{10.6}", item).correct


def test_unknown_names_list_the_known_ones():
    with pytest.raises(ValueError, match=r"kind='formula'.*'choice', 'yesno', 'int'"):
        _verdict("1", "1", "formula")
    with pytest.raises(ValueError, match=r"form='xml'.*'think_boxed'"):
        _verdict("1", "1", "int", form="xml")


# ------------------------------------------------------------------------------ golds
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
    assert verify.normalise_gold(answer, kind, choices=choices) == expected
    assert verify.normalise_gold(expected, kind, choices=choices) == expected


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
        verify.normalise_gold(answer, kind, choices=choices)
