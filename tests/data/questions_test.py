"""What is taken off a question, and what two texts of one question share."""

import pytest

from vade_jax.data import questions


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("Is it?\nAnswer yes or no.", "Is it?"),
        ("Is it? Answer yes or no", "Is it?"),
        ("Is it?\nBe succinct.\nAnswer the question with a short phrase.", "Is it?"),
        ("Question: Question: Is it?", "Is it?"),
        ("Can you answer yes or no?", "Can you answer yes or no?"),
        ("What does the hint say?", "What does the hint say?"),
        ("Answer the question using a single word or phrase. Why?",) * 2,
        (
            "Find x. You FIRST think about the reasoning process as an internal monologue and "
            "then provide the final answer. The final answer MUST BE put in \\boxed{}.",
            "Find x.",
        ),
        ("Question:", ""),
    ],
)
def test_wishes_about_the_form_are_taken_off(text, bare):
    assert questions.strip(text) == bare


@pytest.mark.parametrize(
    ("text", "choices"),
    [
        ("Q\nChoices:\n(A) 135°\n(B) 140°", ("135°", "140°")),
        ("Q\nOptions:\nA 3\nB 4\n", ("3", "4")),
        ("Q\nA. one\nB) two\nC: three", ("one", "two", "three")),
        ("Q\nA. one\nC. three", ()),
        ("Q\nA. one", ()),
        ("Q\nChoices:\nA. one\nand more", ()),
        ("Q\nA: 1\nB: 2\nA: 3\nB: 4", ("3", "4")),
        ("A cat\nB sat", ()),
    ],
)
def test_options_are_labelled_lines_at_the_end(text, choices):
    question, found = questions.split_choices(text)
    assert found == choices
    assert question == text if not choices else question.startswith("Q")
    if choices:
        again = questions.with_choices(question, choices)
        assert questions.split_choices(again) == (question, choices)


def test_one_question_has_one_key():
    asked = (
        "Hint: Please answer the question and provide the final answer at the end.\n"
        + "Question: Find  X.\nChoices:\nA: 30\nB: 45"
    )
    assert questions.key(asked) == "find x"
    assert questions.key("<image1>find x\n(A) 3\n(B) 4") == "find x"
    assert questions.key("Find y.") != "find x"
