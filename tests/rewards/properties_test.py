"""What hypothesis makes of texts, numbers and keys: a verdict for each, both ways the same, in time."""

import decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.vade_9k import golds
from tests.cpu_limit import cpu_limit
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
NUMBERS = st.decimals(-1000, 1000, places=3).map(lambda x: f"{x:f}")


@settings(max_examples=500, **SAME)
@given(text=NASTY, numeric=st.booleans())
def test_any_text_is_read_or_it_is_not(text, numeric):
    value = reading.read(text, numeric=numeric)
    assert value is None or isinstance(value, values.Value)


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


@pytest.mark.parametrize(
    "part",
    ["\\boxed{", "\\boxed{7}, ", "{", "\\text{", "1,", "(", "|", "x+", "\\frac{1}", "f(", "\\begin{matrix}", "1 or ", "-", " ", "日"],
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
