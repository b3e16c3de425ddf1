"""ScienceQA: the letter, and what is close to it and wrong."""

import pytest

from tests.evals.benchmarks import files
from vade_jax.evals.benchmarks import scienceqa


@pytest.fixture
def item(tmp_path):
    return files.item(tmp_path, "scienceqa")


@pytest.mark.parametrize(
    ("texts", "right"),
    [
        (("B", "b", "B.", "B. green", " B ", "B\n", "B.green"), True),
        (("b.", "(B)", "B) green", "B green", "Answer: B", "green"), False),
        ((r"\boxed{B}", "B,", "A. B"), False),
    ],
)
def test_letters(item, texts, right):
    for text in texts:
        assert scienceqa.score(scienceqa.extract(text, item), item) is right, text


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


def test_prompts(item, tmp_path):
    question = "What colour?\nA. red\nB. green\nC. blue\n"
    assert scienceqa.prompt(item, "paper") == question + scienceqa.INSTRUCTION
    cot = scienceqa.prompt(item, "cot")
    assert cot.startswith(question) and scienceqa.INSTRUCTION not in cot
    hinted = files.item(tmp_path, "scienceqa", hint="Grass.")
    assert scienceqa.prompt(hinted, "paper").startswith("Context: Grass.\nWhat")


@pytest.mark.parametrize(
    ("changes", "modality", "grade"),
    [
        ({}, ("image",), "7-12"),
        ({"hint": "Grass.", "image": None, "grade": "grade6"}, ("text",), "1-6"),
        ({"image": None}, ("none",), "7-12"),
        ({"hint": "Grass."}, ("text", "image"), "7-12"),
    ],
)
def test_groups(tmp_path, changes, modality, grade):
    item = files.item(tmp_path, "scienceqa", subject="social science", **changes)
    assert scienceqa.groups(item) == {
        "subject": ("social science",),
        "modality": modality,
        "grade": (grade,),
    }
