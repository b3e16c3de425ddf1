"""Verdicts on whole answers."""

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
