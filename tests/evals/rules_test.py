"""Texts as policies write them, read without a judge."""

import pytest

from tests.evals.benchmarks import files
from vade_jax.evals import rules
from vade_jax.evals.benchmarks import BENCHMARKS

FREE = {"choices": None, "question_type": "free_form"}
INTEGER = FREE | {"answer_type": "integer", "answer": "1200"}


def item(tmp_path, name, make, **changes):
    path = files.save(tmp_path / f"{name}.parquet", make(**changes))
    return BENCHMARKS[name].read(path)[0]


def decided(tmp_path, name, make, text, profile="paper", **changes):
    found = item(tmp_path, name, make, **changes)
    return rules.by_rules(BENCHMARKS[name], profile)(found, text)


@pytest.mark.parametrize(
    ("text", "extracted", "correct"),
    [
        ("140°", "140°", True),  # literally a choice: the benchmark's own rule
        ("I add them up.\nThe answer is B. It is wide.", "B", True),
        ("I add them up.\nThe answer is (C).", "C", False),
        ("I add them up.\nThe answer is 140°.", "140°", True),
        ("Answer: (B) 140°", "B", True),
        ("The answer is A. No, wait: the answer is B", "B", True),
        ("**Answer:** B", "B", True),
        (r"So it is \boxed{B}, not A.", "B", True),
        (r"The answer is A. \boxed{B}", "B", True),
        ("B", "B", True),
    ],
)
def test_a_choice_is_read_from_box_tail_or_short_text(
    tmp_path, text, extracted, correct
):
    verdict = decided(tmp_path, "mathvista", files.mathvista, text)
    assert verdict == rules.Verdict(extracted, correct, "rules")


@pytest.mark.parametrize(
    "text",
    [
        "I look at the picture for a long time and see\nmany angles in it.",
        "who knows",  # near some choice, as every text is
        "The answer is E.",
    ],
)
def test_what_nothing_can_be_read_from_is_wrong_and_says_so(tmp_path, text):
    verdict = decided(tmp_path, "mathvista", files.mathvista, text)
    assert verdict == rules.Verdict(None, False, "undecided")


@pytest.mark.parametrize("text", ["1200", "It is 1,200 cm:\nAnswer: 1,200 cm"])
def test_a_number_loses_commas_and_unit(tmp_path, text):
    verdict = decided(tmp_path, "mathvista", files.mathvista, text, **INTEGER)
    assert (verdict.extracted, verdict.correct) == ("1200", True)


@pytest.mark.parametrize(
    ("gold", "text", "correct"),
    [
        ("B", "The answer is B", True),
        ("B", "The answer is A", False),
        ("2\\sqrt{3}", r"\boxed{\sqrt{12}}", True),
        ("2\\sqrt{3}", r"\boxed{\sqrt{13}}", False),
        ("6 units", r"\boxed{6 units}", True),
    ],
)
def test_a_verdict_that_a_judge_would_give(tmp_path, gold, text, correct):
    kind = "multi-choice" if gold == "B" else "free-form"
    changes = {"answer": gold, "question_type": kind}
    verdict = decided(tmp_path, "mathverse", files.mathverse, text, **changes)
    assert (verdict.correct, verdict.outcome) == (correct, "rules")


def test_the_rules_of_a_benchmark_without_judge_are_kept(tmp_path):
    verdict = decided(tmp_path, "chartqa", files.chartqa, "the answer is 10")
    assert verdict == rules.Verdict("the answer is 10", False, "rules")


def test_a_benchmark_that_shows_whole_answers_to_a_judge_has_no_rules():
    with pytest.raises(
        ValueError, match=r"mathvista_binary has no rules.*give a judge"
    ):
        rules.by_rules(BENCHMARKS["mathvista_binary"], "paper")
