"""MathVista: what rules can extract, what a judge model is asked, and traps of normalisation."""

import dataclasses
import functools

import pytest

from tests.evals.benchmarks import files
from vade_jax.evals.benchmarks import mathvista

make = functools.partial(files.item, name="mathvista")


def free(tmp_path, answer_type, answer, precision=None):
    return make(
        tmp_path,
        question_type="free_form",
        answer_type=answer_type,
        answer=answer,
        choices=None,
        precision=precision,
    )


@pytest.mark.parametrize(
    ("text", "extracted"),
    [
        (r"So \boxed{B}", "B"),
        (r"\boxed{(B)}", "B"),
        (r"\boxed{140^\circ}", "140°"),
        (r"\boxed{both}", None),
        ("no box", None),
        ("140°", "140°"),
    ],
)
def test_cot_reads_the_box_where_rules_can(tmp_path, text, extracted):
    item = make(tmp_path)
    assert mathvista.extract(text, item, "cot") == extracted
    paper = text if text in ("", "140°") else None  # literally a choice
    assert mathvista.extract(text, item) == paper


@pytest.mark.parametrize(
    ("answer_type", "text", "profile", "extracted"),
    [
        ("integer", "", "paper", ""),
        ("integer", " 4\n", "paper", "4"),
        ("integer", "4.0", "paper", None),
        ("float", "1.20", "paper", "1.2"),
        ("float", "1.2 m", "paper", None),
        ("list", "[1]", "paper", None),
        ("integer", r"\boxed{4}", "cot", "4"),
        ("integer", r"\boxed{4 apples}", "cot", None),
    ],
)
def test_extraction_of_free_answers(tmp_path, answer_type, text, profile, extracted):
    item = free(tmp_path, answer_type, "4", 1.0)
    assert mathvista.extract(text, item, profile) == extracted


@pytest.mark.parametrize(
    ("text", "choices", "chosen"),
    [
        ("b", ["x", "b c"], "x"),  # no letter; distances 1 and 2
        ("(b)", ["x", "y"], "y"),
        ("a (b) (a)", ["x", "y"], "y"),
        ("B. xy", ["xyz", "y"], "xyz"),  # edits count, the letter does not
        ("yellow", ["Yellow", "yellow"], "yellow"),
        ("", ["long", "no"], "no"),
        ("(E)", ["long", "no"], "no"),
    ],
)
def test_a_choice_is_always_some_choice(text, choices, chosen):
    found = mathvista.normalize(text, choices, "multi_choice", "text", None)
    assert found == chosen


@pytest.mark.parametrize(
    ("text", "answer_type", "precision", "written"),
    [
        ("4.9", "integer", None, "4"),
        ("-0.5", "integer", None, "0"),
        ("1,000", "integer", None, None),
        ("inf", "integer", None, None),
        ("nan", "integer", None, None),
        ("1.15", "float", 1, "1.1"),
        ("1.25", "float", 1, "1.2"),
        ("1.15", "float", 1.0, "1.1"),  # parquet holds the precision as a float
        ("2", "float", 2, "2.0"),
        ("[1, 2]", "list", None, "[1, 2]"),
    ],
)
def test_numbers(text, answer_type, precision, written):
    found = mathvista.normalize(text, None, "free_form", answer_type, precision)
    assert found == written


@pytest.mark.parametrize(
    ("a", "b", "distance"),
    [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "abc", 0), ("ab", "ba", 2)],
)
def test_edit_distance(a, b, distance):
    assert mathvista.edit_distance(a, b) == distance
    assert mathvista.edit_distance(b, a) == distance


def test_prompts(tmp_path):
    item, query = make(tmp_path), files.mathvista()["query"]
    assert mathvista.prompt(item, "paper") == query
    assert mathvista.prompt(item, "cot").startswith(query + "\n")
    judge = mathvista.BENCHMARK.judge
    prompt = judge.extraction_prompt("so {b}", item)
    assert prompt.endswith(f"{query}\n\nso {{b}}\n\nExtracted answer: ")
    assert prompt.count("Extracted answer:") == 6
    assert judge.read_extraction("Extracted answer: B\n") == "B"
    assert judge.read_extraction(" \n") is None


def test_the_binary_judge(tmp_path):
    item, judge = make(tmp_path), mathvista.BINARY.judge
    assert mathvista.BINARY.extract("so B", item) == "so B"
    assert mathvista.BINARY.score("so B", item) is None
    prompt = judge.judge_prompt("so {B}", item)
    assert "Reference answer: 140°\nPrediction: so {B}\n" in prompt
    replies = ["Correct", "**incorrect**.", "Verdict: Correct.", "correct, I think", ""]
    expected = [True, False, True, None, None]
    assert [judge.read_judgement(reply) for reply in replies] == expected


def test_groups_count_each_skill_once(tmp_path):
    metadata = files.mathvista()["metadata"] | {"skills": ["a", "b", "a"]}
    groups = mathvista.groups(make(tmp_path, metadata=metadata))
    assert list(groups) == [
        *("question_type", "answer_type", "language", "source", "category"),
        *("task", "context", "grade", "skills"),
    ]
    assert groups["skills"] == ("a", "b") and groups["grade"] == ("high school",)


def test_the_gold_is_compared_as_it_is(tmp_path):
    item = free(tmp_path, "list", "[1, 2]")
    assert mathvista.score("[1, 2]", item) and not mathvista.score("[1,2]", item)
    spaced = dataclasses.replace(item, answer="[1, 2] ")
    assert not mathvista.score("[1, 2]", spaced)
