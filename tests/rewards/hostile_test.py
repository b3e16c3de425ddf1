"""Hundreds of answers that want to be counted as right, and what hypothesis makes of the rest."""

import decimal
import json
import pathlib

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from experiments.vade_9k import golds
from vade_jax.rewards import answers, process, verify

TABLE = json.loads(pathlib.Path(__file__).with_name("hostile_answers.json").read_text())
GOLDS = {name: dict(gold) for name, gold in TABLE["golds"].items()}
FAST = {name: gold for name, gold in GOLDS.items() if gold["kind"] != "expr"}
SAME = {"deadline": 5_000, "derandomize": True}  # the same examples every time
PIECES = st.sampled_from([
    "\\boxed{", "}", "{", "\\", "$", "\\frac{", "\\sqrt", "^", "_", "%", ",", ".", " ",
    "7", "0", "e", "1e999", "-", "+", "=", "/", "x", "yes", "no", "(B)", "B. ", "blue",
    "\\text{", "\\left", "\\infty", "nan", "\n", "[", "]", "or", "not", "\u202e", "\x00",
])  # fmt: skip
NASTY = st.one_of(st.text(), st.lists(PIECES).map("".join))
BOXED = NASTY.map(lambda text: f"\\boxed{{{text}}}")
NUMBERS = st.decimals(-1000, 1000, places=3).map(lambda x: f"{x:f}")


def _text(parts):
    """Returns the text of a record: a string, or strings and [string, times]."""
    if isinstance(parts, str):
        return parts
    return "".join(part if isinstance(part, str) else part[0] * part[1] for part in parts)


def test_the_table_is_large_and_mostly_wrong():
    assert len(TABLE["answers"]) >= 500
    assert sum(correct for *_, correct in TABLE["answers"]) < len(TABLE["answers"]) / 3


@pytest.mark.parametrize("name", GOLDS)
def test_no_hostile_answer_is_right_unless_it_is(name):
    wrong = [
        (parts, verdict.reason)
        for gold, parts, correct in TABLE["answers"]
        if gold == name
        and (verdict := verify.verify(_text(parts), **GOLDS[name])).correct != correct
    ]
    assert not wrong


@pytest.mark.parametrize("name", GOLDS)
def test_every_gold_of_the_table_is_its_own_answer(name):
    gold = {k: v for k, v in GOLDS[name].items() if k != "tolerance"}
    assert golds.normalise(**gold) == gold["answer"]


@settings(max_examples=150, **SAME)
@given(text=st.one_of(NASTY, BOXED), gold=st.sampled_from(sorted(FAST)))
def test_any_text_gets_a_verdict(text, gold):
    for form in answers.FORMATS:
        verdict = verify.verify(text, **FAST[gold], form=form)
        assert verdict.correct == (verdict.reason == "ok")


@settings(max_examples=60, deadline=20_000, derandomize=True)
@given(text=BOXED, gold=st.sampled_from(sorted(GOLDS.keys() - FAST.keys())))
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


def test_only_formulas_reach_a_worker(monkeypatch):
    """A round trip to another process is a thousand comparisons."""
    monkeypatch.setattr(process, "_live_worker", None)
    for name, parts, _ in TABLE["answers"]:
        if name in FAST:
            verify.verify(_text(parts), **GOLDS[name])
