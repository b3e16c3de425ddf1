"""MathVerse: queries, extraction and judgement by a judge model."""

import functools

import pytest

from tests.evals.benchmarks import files
from vade_jax.evals.benchmarks import BENCHMARKS, mathverse

JUDGE = mathverse.BENCHMARK.judge
make = functools.partial(files.item, name="mathverse")


def test_queries(tmp_path):
    item = make(tmp_path)
    cot, direct = (files.mathverse()[f"query_{x}"] for x in ("cot", "wo"))
    assert mathverse.prompt(item, "paper") == cot
    assert mathverse.prompt(item, "cot").startswith(cot + "\n")
    assert BENCHMARKS["mathverse_direct"].prompt(item, "paper") == direct


def test_the_paper_profile_leaves_both_steps_to_the_judge(tmp_path):
    item = make(tmp_path)
    assert mathverse.extract(r"\boxed{B}", item) is None
    assert mathverse.score("B", item) is None


@pytest.mark.parametrize(
    ("text", "extracted", "right"),
    [
        (r"\boxed{B}", "B", True),
        (r"\boxed{(b)}", "(b)", True),
        (r"\boxed{A}", "A", None),
    ],
)
def test_cot_asks_only_about_differences(tmp_path, text, extracted, right):
    item = make(tmp_path)
    assert mathverse.extract(text, item, "cot") == extracted
    assert mathverse.score(extracted, item, "cot") is right
    assert mathverse.extract(r"B \boxed{}", item, "cot") is None


def test_vision_only_is_judged_by_another_question(tmp_path):
    changes = {"problem_version": "Vision Only", "question": ""}
    item = make(tmp_path, **changes)
    assert item.question == ""
    prompt = JUDGE.judge_prompt("{40}", item)
    tail = "[Question]: Find x.\nChoices:\nA:40°\nB:50°\n[Standard Answer]: B\n"
    assert prompt.endswith(tail + "[Model answer]: {40}\nJudgement: ")
    assert prompt.count("Judgement:") == 6
    with pytest.raises(ValueError, match=r"column question_for_eval: is empty"):
        make(tmp_path, **changes, question_for_eval=None)


def test_extraction_sees_the_last_words(tmp_path):
    item, text = make(tmp_path), " ".join(map(str, range(100)))
    prompt = JUDGE.extraction_prompt(text, item)
    last = " ".join(map(str, range(70, 100)))
    assert prompt.endswith(f"'{last}'\nExtracted Answer: ")
    assert prompt.count("Extracted Answer:") == 7 and item.question not in prompt
    assert f"'{text}'" in mathverse.extraction_prompt(text, item, last_words=0)
    replies = ["Extracted Answer: B ", "null", "  "]
    assert [JUDGE.read_extraction(r) for r in replies] == ["B", "null", None]


def test_judgements_are_a_digit():
    replies = ["1", " 0\n", "Judgement: 1", "1.", "yes", "", "10"]
    expected = [True, False, True, None, None, None, None]
    assert [JUDGE.read_judgement(reply) for reply in replies] == expected


def test_groups_and_clusters(tmp_path):
    rows = [
        files.mathverse(str(i), problem_version=version)
        for i, version in enumerate(mathverse.VERSIONS)
    ]
    rows.append(files.mathverse("9", problem_index="2", answer="C\nD"))
    items = mathverse.read(files.save(tmp_path / "b.parquet", *rows))
    versions = tuple(mathverse.groups(i)["version"][0] for i in items[:5])
    assert versions == mathverse.VERSIONS
    assert mathverse.groups(items[0])["subfield"] == ("Plane Geometry, Angle",)
    assert [mathverse.BENCHMARK.cluster(i) for i in items] == [*"11111", "2"]
    assert (items[5].answer, items[5].kind) == ("C\nD", "text")
