"""One table a kind: what is right, what is wrong, and why."""

import pytest

from tests.cpu_limit import cpu_limit
from vade_jax import types
from vade_jax.rewards import verify


def _verdict(given, answer, kind, **kwargs):
    return verify.verify(f"\\boxed{{{given}}}", answer, kind, **kwargs)


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        *[(given, "B", "ok") for given in ("B", "b", "(B)", "b.", "B. 30", "B: red")],
        *[(given, "B", "ok") for given in ("B)", "(B) 30", "B 30", "\\text{B}", "$B$")],
        *[(given, "B", "ok") for given in ("Option B", "The answer is B.", "Ｂ")],
        *[(given, "B", "different") for given in ("A", "(C)", "A. B", "D 30")],
        *[("A, B", "A", "unreadable"), ("A dog", "A", "unreadable")],
        *[("I think B", "I", "unreadable"), ("A or B", "A", "unreadable")],
        *[("", "B", "unreadable"), ("30", "B", "unreadable"), ("K", "B", "unreadable")],
        *[("B", "(B)", "ok"), ("B", "B. 30", "ok"), ("B", "thirty", "bad_key")],
        *[("A. or B.", "A", "unreadable"), ("A) 1 B) 2", "A", "unreadable")],
    ],
)
def test_choice(given, answer, reason):
    assert _verdict(given, answer, "choice").reason == reason


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        *[("Red", "A", "ok"), ("A", "A", "ok"), ("red.", "B", "different")],
        *[("C", "B", "ok"), ("blue", "C", "ok"), ("D", "A", "unreadable")],
        *[("green", "A", "unreadable"), ("A", "E", "bad_key")],
        *[("B. red", "A", "unreadable"), ("A. blue", "B", "unreadable")],
        *[("A. red", "A", "ok"), ("A: crimson", "A", "ok"), ("(C) blue", "B", "ok")],
    ],
)
def test_choice_by_the_text_of_an_option(given, answer, reason):
    choices = ("red", "blue", "blue")  # equal options are equally right
    assert _verdict(given, answer, "choice", choices=choices).reason == reason


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        *[
            (given, "Yes", "ok")
            for given in ("yes", "YES.", "Yes, there are", "\\text{yes}")
        ],
        *[("no", "No.", "ok"), ("no", "yes", "different")],
        *[
            (given, "yes", "unreadable")
            for given in ("yes and no", "maybe", "", "yesno")
        ],
        *[("no, it is not", "no", "ok"), ("yes, but not", "yes", "unreadable")],
        *[("yes or maybe", "yes", "unreadable"), ("yes", "perhaps", "bad_key")],
    ],
)
def test_yesno(given, answer, reason):
    assert _verdict(given, answer, "yesno").reason == reason


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        *[
            (given, "7", "ok")
            for given in ("7", "7.0", "07", "７", "7 cm", "x=7", "14/2")
        ],
        *[("1,000", "1000", "ok"), ("1000", "1,000", "ok"), ("-0", "0", "ok")],
        *[("30°", "30", "ok"), ("30", "30^\\circ", "ok"), ("50%", "50", "ok")],
        *[
            ("7.5", "7", "different"),
            ("-7", "7", "different"),
            ("70", "7", "different"),
        ],
        *[("seven", "7", "unreadable"), ("7 or 8", "7", "unreadable")],
        *[("7", "7.5", "bad_key"), ("7", "seven", "bad_key")],
        *[("3=7", "7", "unreadable"), ("7=7", "7", "ok"), ("14/2=7", "7", "ok")],
        *[("x!=7", "7", "unreadable"), ("3\\frac{1}{2}", "31", "unreadable")],
        *[("9" * 41, "9" * 40 + "8", "different"), ("9" * 200, "7", "different")],
    ],
)
def test_int(given, answer, reason):
    assert _verdict(given, answer, "int").reason == reason


@pytest.mark.parametrize(
    ("given", "answer", "tolerance", "reason"),
    [
        *[("3.14", "3.14", None, "ok"), ("3.1416", "3.14", None, "ok")],
        *[("3.14", "3.1416", None, "different"), ("3.15", "3.14", None, "different")],
        *[("0.5", "\\frac{1}{2}", None, "ok"), ("0.333", "1/3", None, "ok")],
        *[("0.3", "1/3", None, "different"), ("50%", "0.5", None, "ok")],
        *[("0.5", "50%", None, "ok"), ("50", "50%", None, "ok")],
        *[("9.5", "10", 0.05, "ok"), ("10.5", "10", 0.05, "ok")],
        *[("9.4", "10", 0.05, "different"), ("-9.5", "-10", 0.05, "ok")],
        *[("0", "0", 0.05, "ok"), ("0.01", "0", 0.05, "different")],
        *[("about 3", "3", 0.05, "unreadable"), ("3", "pi", None, "bad_key")],
    ],
)
def test_float(given, answer, tolerance, reason):
    assert _verdict(given, answer, "float", tolerance=tolerance).reason == reason


@pytest.mark.parametrize(
    ("given", "answer", "reason"),
    [
        *[("The Dark-blue.", "dark blue", "ok"), ("\\text{red}", "Red", "ok")],
        *[("blue dark", "dark blue", "different"), ("-5", "5", "different")],
        *[("!", "red", "unreadable"), ("red", "?", "bad_key"), ("Red!", "red", "ok")],
        *[("x>5", "x > 5", "ok"), ("x<5", "x>5", "different")],
        *[("x>=5", "x>5", "different"), ("5", "> 5", "different")],
    ],
)
def test_text(given, answer, reason):
    assert _verdict(given, answer, "text").reason == reason


def test_without_a_box_nothing_is_correct():
    verdict = verify.verify("The answer is 7", "7", "int")
    assert verdict == verify.Verdict(False, False, None, "no_box")
    assert verify.verify("\\boxed{" + "7" * 201 + "}", "7", "int").reason == "too_long"


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


@pytest.mark.parametrize("kind", sorted(verify.KINDS.keys() - {"expr"}))
@pytest.mark.parametrize(
    "part", ["A. ", "1,", "((((", "\\text{", "yes ", "-", " ", "9e99", "\\frac{1}{"]
)
def test_nasty_answers_are_wrong_and_read_at_once(kind, part):
    given = (part * 200)[:190]
    with cpu_limit(10):
        assert not verify.verify(f"\\boxed{{{given}}} " * 3, "41", kind).correct
