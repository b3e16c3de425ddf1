"""ScienceQA: the letter, and what is close to it and wrong."""

import pytest

from tests.evals.benchmarks import files
from vade_jax.evals.benchmarks import scienceqa


@pytest.fixture
def item(tmp_path):
    return scienceqa.read(files.save(tmp_path / "a.parquet", files.scienceqa()))[0]


@pytest.mark.parametrize("text", ["B", "b", "B.", "B. green", " B ", "B\n", "B.green"])
def test_right(item, text):
    assert scienceqa.score(scienceqa.extract(text, item), item) is True


@pytest.mark.parametrize(
    "text",
    [
        "b.",
        "(B)",
        "B) green",
        "B green",
        "Answer: B",
        "green",
        r"\boxed{B}",
        "B,",
        "A. B",
    ],
)
def test_wrong(item, text):
    assert scienceqa.score(scienceqa.extract(text, item), item) is False


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{B}", "B"),
        (r"\boxed{A} or rather \boxed{\text{(B)}}", "B"),
        (r"\boxed{B) green}", "B"),
        (r"\boxed{b. green}", "b"),
        (r"\boxed{green}", "B"),
        (r"\boxed{greenish}", "greenish"),
        (r"\boxed{Blue or red}", "Blue or red"),
        ("B", ""),
    ],
)
def test_cot_takes_the_letter_out_of_the_box(item, text, letter):
    assert scienceqa.extract(text, item, "cot") == letter
    assert scienceqa.score(letter, item, "cot") is (letter.upper() == "B")


def test_prompts(item):
    question = "What colour?\nA. red\nB. green\nC. blue\n"
    assert scienceqa.prompt(item, "paper") == question + scienceqa.INSTRUCTION
    cot = scienceqa.prompt(item, "cot")
    assert cot.startswith(question) and scienceqa.INSTRUCTION not in cot


def test_groups(tmp_path):
    rows = [
        files.scienceqa(),
        files.scienceqa(hint="Grass.", image=None, grade="grade6"),
        files.scienceqa(image=None, subject="social science"),
        files.scienceqa(hint="Grass."),
    ]
    items = scienceqa.read(files.save(tmp_path / "a.parquet", *rows))
    groups = [scienceqa.groups(item) for item in items]
    assert [g["modality"] for g in groups] == [
        ("image",),
        ("text",),
        ("none",),
        ("text", "image"),
    ]
    assert [g["grade"] for g in groups] == [("7-12",), ("1-6",), ("7-12",), ("7-12",)]
    assert [g["subject"][0] for g in groups][1:3] == [
        "natural science",
        "social science",
    ]
    assert scienceqa.prompt(items[1], "paper").startswith("Context: Grass.\nWhat")
