"""MathVision: prompts, the official rules at their edges, and the judged scorer."""

import pytest

from tests.evals.benchmarks import files
from vade_jax.evals.benchmarks import mathvision


def make(tmp_path, answer="7", options=(), **changes):
    changes |= {"answer": answer, "options": list(options)}
    return files.item(tmp_path, "mathvision", **changes)


# Run through the official code, which is not copied here.
@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        (r"\boxed{60.01}", "60", False),
        (r"\boxed{1,000}", "1000", True),
        (r"\boxed{7 \text{ cm}}", "7", False),
        (r"\boxed{7", "7", False),
        (r"\boxed{12 km}", "12", True),
        (r"\boxed{.5}", "0.5", True),
        (r"\boxed{1/2}", "0.5", True),
        (r"\boxed{\tfrac34}", "0.75", False),
        (r"\boxed{\sqrt{\frac12}}", "0.71", True),
        (r"\boxed{\left(\frac{1}{2},3\right)}", "(0.5,3)", True),
        ("So x is 7.", "7", True),
        ("The final answer is 7. Because it is.", "7", True),
        ("the answer is 7\nmore", "7", True),
        (r"\boxed{x=7}", "7", True),
        (r"$\boxed{7}$", "7", True),
        ("7}{", "7", True),  # a closing brace too many ends the number
        ("two", "2", False),
        ("", "7", False),
    ],
)
def test_official_rules(tmp_path, text, answer, right):
    item = make(tmp_path, answer)
    assert mathvision.score(mathvision.extract(text, item), item) is right


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("C\nbecause", True),
        ("(C) C\nbecause", True),
        ("I take (C).", True),
        (r"\boxed{\text{(C)}}", True),
        (r"\boxed{0.5}", True),  # the text of option C
        (r"\boxed{C. 0.5}", False),
        (r"\boxed{A}", False),
        ("c)", False),
    ],
)
def test_letters_or_the_text_of_the_option(tmp_path, text, right):
    item = make(tmp_path, "C", ["1", "2", r"$\frac{1}{2}$", "4", "5"])
    assert mathvision.score(mathvision.extract(text, item), item) is right


def test_lists_are_compared_as_text():
    assert mathvision.equal("(1,2)", "(1, 2)")
    assert mathvision.equal("(1,2)", "(1,2.0)")  # a whole decimal is an integer
    assert not mathvision.equal("(1,2)", "(1,4/2)")  # "2" is not "2.0"
    assert not mathvision.equal("(1,2)", "[1,2]")
    assert not mathvision.equal("(1,x)", "(1, y)")


@pytest.mark.parametrize("text", ["9^{9^{9}}", "(" * 150, "-" * 150, "9" * 10_000])
def test_hostile_answers_end(tmp_path, text):
    item = make(tmp_path)
    extracted = mathvision.extract(rf"\boxed{{{text}}}", item)
    assert mathvision.score(extracted, item) is False


def test_prompts(tmp_path):
    free = make(tmp_path)
    expected = f"{mathvision.INSTRUCTION}\nHow many?\n<image1>\n"
    assert mathvision.prompt(free, "paper") == expected
    assert mathvision.prompt(make(tmp_path, "B", "ABCDE"), "paper") == expected
    listed = mathvision.prompt(make(tmp_path, "B", "12345"), "cot")
    assert listed == expected + "(A) 1\n(B) 2\n(C) 3\n(D) 4\n(E) 5\n"


def test_the_judge_is_asked_only_where_rules_fail(tmp_path):
    scorer, item = mathvision.JUDGED, make(tmp_path, "B", "12345")
    assert scorer.extract(r"\boxed{B}", item) == "b"
    assert scorer.extract(r"\boxed{B. 2}", item) is None
    prompt = scorer.judge.extraction_prompt("so {B. 2}", item)
    assert prompt.endswith("(D) 4\n(E) 5\nStudent: so {B. 2}\nFinal answer:")
    assert scorer.judge.read_extraction("Final answer: (B)\n") == "B"
    assert scorer.judge.read_extraction("") is None
    number = make(tmp_path, "0.333333")
    assert [scorer.score(text, item) for text in ("B", "2", "A")] == [True, True, False]
    assert scorer.score("1/3", number) is True
    assert scorer.score("null", number) is False


def test_groups(tmp_path):
    assert mathvision.groups(make(tmp_path, level="4")) == {
        "level": ("4",),
        "subject": ("counting",),
        "subject, level": ("counting, 4",),
    }
