"""What hypothesis makes of texts, numbers and keys: a verdict for each, both ways the same, in time."""

import decimal

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.vade_9k import golds
from tests.cpu_limit import cpu_limit
from tests.rewards.verify_test import GOLDS
from vade_jax.rewards import answers, reading, values, verify

SAME = {"deadline": 5_000, "derandomize": True}  # the same examples every time
PIECES = st.sampled_from([
    "\\boxed{", "}", "{", "\\", "$", "\\frac", "{1}", "\\sqrt", "^", "_", "%", ",", ";", ".", " ", "(", ")", "[", "]", "\\{",
    "\\}", "|", "!", "'", "<", "\\in", "\\pm", "+", "-", "=", "/", "\\times", "\\sin", "f(", "x", "xy", "ABC", "cm", "per", "square",
    "\\text{a}", "\\degree", "7", ".6", "0", "e", "1e999", "1,000", "10^", "4_5", "0.\\overline{3}", "\\infty", "\\cup", "\\mathbb",
    "\\begin{matrix}", "\\end", "\\\\", "&", " or ", "not", "yes", "no", "(B)", "B. ", "blue", "\\left", "nan", "\n", "\u202e", "\x00",
    "\\angle", "\\int", "\\log_", "\\approx", "million", "\\binom", "日", "\ud800", "</think>", "9^{9^{9^9}}", "__import__('os')",
])  # fmt: skip
NASTY = st.one_of(st.text(), st.lists(PIECES).map("".join))
BOXED = NASTY.map(lambda text: f"\\boxed{{{text}}}")
FAST = sorted(name for name, gold in GOLDS.items() if gold["kind"] != "expr")
NUMBERS = st.decimals(-1000, 1000, places=3).map(lambda x: f"{x:f}")


@settings(max_examples=500, **SAME)
@given(text=NASTY, numeric=st.booleans())
def test_any_text_is_read_or_it_is_not(text, numeric):
    value = reading.read(text, numeric=numeric)
    assert value is None or isinstance(value, values.Value)


@settings(max_examples=150, **SAME)
@given(text=st.one_of(NASTY, BOXED), gold=st.sampled_from(FAST))
def test_any_text_gets_a_verdict(text, gold):
    for form in answers.FORMATS:
        verdict = verify.verify(text, **GOLDS[gold], form=form)
        assert verdict.correct == (verdict.reason == "ok")


@settings(max_examples=60, deadline=20_000, derandomize=True)
@given(text=BOXED, gold=st.sampled_from(sorted(GOLDS.keys() - {*FAST})))
def test_any_formula_gets_a_verdict(text, gold):
    verdict = verify.verify(text, **GOLDS[gold])
    assert verdict.correct == (verdict.reason == "ok")


@settings(max_examples=300, **SAME)
@given(
    answer=st.one_of(NASTY, NUMBERS, PIECES),
    kind=st.sampled_from(sorted(verify.KINDS.keys() - {"expr", "list"})),
)
def test_a_kept_gold_verifies_against_itself(answer, kind):
    choices = ("red", "blue", "7") if kind == "choice" else ()
    try:
        gold = golds.normalise(answer, kind, choices=choices)
    except ValueError:
        return
    assert verify.verify(f"\\boxed{{{gold}}}", gold, kind, choices=choices).correct


def _correct(given, answer, kind, **options):
    return verify.verify(f"\\boxed{{{given}}}", answer, kind, **options).correct


@settings(**SAME)
@given(x=NUMBERS, y=NUMBERS)
def test_numbers_are_compared_both_ways(x, y):
    is_equal = decimal.Decimal(x) == decimal.Decimal(y)
    for kind, options in (("float", {"tolerance": 0.0}), ("expr", {})):
        assert _correct(x, y, kind, **options) == is_equal
        assert _correct(y, x, kind, **options) == is_equal
        assert _correct(x, x, kind, **options)


@settings(**SAME)
@given(x=st.integers(-(10**40), 10**40), y=st.integers(-(10**40), 10**40))
def test_whole_numbers_are_compared_exactly(x, y):
    assert _correct(x, str(y), "int") == _correct(y, str(x), "int") == (x == y)
    assert _correct(f"{x:,}", str(x), "int") and _correct(f"{x}.0", f"{x:,}", "int")
    assert not _correct(x + 1, str(x), "int")


@settings(**SAME)
@given(x=NUMBERS, tolerance=st.sampled_from([0.01, 0.05]))
def test_the_relative_tolerance_is_the_gold_s(x, tolerance):
    gold = decimal.Decimal(x)
    assume(abs(gold) > 1)
    for share, expected in (("0.999", True), ("1.001", False)):
        room = gold * decimal.Decimal(str(tolerance)) * decimal.Decimal(share)
        near = f"{gold + room:f}"
        assert _correct(near, x, "float", tolerance=tolerance) == expected


@settings(max_examples=150, **SAME)
@given(pair=st.tuples(NASTY, NASTY), kind=st.sampled_from(["choice", "text", "yesno"]))
def test_letters_and_words_are_compared_both_ways(pair, kind):
    x, y = pair
    assume(not {"{", "}", "\\"} & set(x + y) and max(map(len, pair)) <= 100)
    assert _correct(x, y, kind) == _correct(y, x, kind)


@pytest.mark.parametrize(
    "part",
    ["\\boxed{", "\\boxed{}", "\\boxed{7}, ", "{", "\\", "\\boxed", "\\text{", "1,", "(", "[", "|", "\\{", "x+", "x ", "\\frac", "\\frac{1}",
     "\\sqrt", "x^", "f(", "1.", "red, ", "\\angle", "\\begin{matrix}", "1 or ", "\\sin", "9!", "-", "cm/", "(1,", "|x|&", "=<(", "1\\frac12",
     " ", "^{", "$", ".", "7", "日"],
)  # fmt: skip
def test_long_texts_take_linear_time(part):
    """The square of a million characters would be days of work."""
    text = (part * 20_000)[:19_990]
    with cpu_limit(10):
        answers.extract_boxed(text * 50)
        answers.extract_boxed("\\boxed{" + text * 50 + "}")
        reading.read(text)
        reading.read(text + "}", numeric=True)
        reading.read(text + "(x<1)")
        reading.read(text * 50)
        answers.words(text)
