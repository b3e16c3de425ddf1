"""The texts of each published subset, and what has to become of them."""

import pytest

from experiments.vade_9k import texts
from experiments.vade_9k.texts import Sample

P1 = (
    "Hint: Please answer the question and provide the correct option letter, e.g., A, B, C, D, "
    "at the end.\n"
)
P2 = "Hint: Please answer the question and provide the final answer at the end.\n"
P3 = (
    "First perform reasoning, then finally select the question from the choices in the "
    "following format: Answer: xxx.\n"
)
P4 = "Based on the image, directly select the correct answer for the following question:\n"
FIND_X = "Find x.\nChoices:\n(A) 30\n(B) 45\n(C) 60"


def turn(question, answer, **more):
    return texts.normalise(Sample(question=question, answer=answer, answer_is="turn", **more))


@pytest.mark.parametrize(
    ("question", "answer", "wanted", "gold", "kind"),
    [
        # geo3k, geo170k(qa), the MathV360K ones, CLEVR-Math, figureqa, ai2d
        (P4 + "Question: Find x.\nChoices:\nA: 30\nB: 45\nC: 60", "Answer:B", FIND_X, "B", "choice"),
        (
            P3 + "Question: Find x.\nChoices:\nA: 30\nB: 45\nC: 60",
            "It is 60.\nTherefore, the answer is: C.\nAnswer:C",
            *(FIND_X, "C", "choice"),
        ),
        (P1 + "Question: Find x.\nChoices:\n(A) 30\n(B) 45\n(C) 60", "The answer is A", FIND_X, "A", "choice"),
        (P1 + "Question: Find x.", "The answer is 13.5", "Find x.", "13.5", "float"),
        (P2 + "Question: How many are left?", "The answer is 4", "How many are left?", "4", "int"),
        ("Is X low?\nAnswer yes or no.", "Yes.", "Is X low?", "yes", "yesno"),
        (
            "What eats?\nA. fox\nB. hen\nAnswer with the option's letter from the given choices directly.",
            "B",
            *("What eats?\nChoices:\n(A) fox\n(B) hen", "B", "choice"),
        ),
        # the gold by its text; a free letter; words that only look like options
        ("Find x.\nA. 30\nB. 45", "45", "Find x.\nChoices:\n(A) 30\n(B) 45", "B", "choice"),
        ("Where?\nA dog runs.\nBy a house.", "Left", "Where?\nA dog runs.\nBy a house.", "Left", "text"),
        ("How long?", r"The answer is 2\sqrt{3}.", "How long?", r"2\sqrt{3}", "expr"),
        ("Which years?", "[2007, 2008]", "Which years?", "[2007, 2008]", "list"),
    ],
)  # fmt: skip
def test_turns_of_each_subset(question, answer, wanted, gold, kind):
    made = turn(question, answer)
    assert (made["question"], made["answer"], made["kind"]) == (wanted, gold, kind)
    options = [line[4:] for line in wanted.split("\n") if line.startswith("(")]
    assert (made["choices"] or []) == options


@pytest.mark.parametrize(
    ("solution", "gold"),
    [
        ("Add: $1.20 + $3.50 = $4.70.\nThe total cost is $4.70.", "4.70"),
        ("The numbers are 3, 4. The range is 1,234.", "1,234"), ("Subtract.\n7 - 9 = -2", "-2"),
        ("There is a surplus.", "There is a surplus"), ("So it is.\nThe answer is yes.", "yes"),
        ("First the answer is 4. Check again: the answer is 5.", "5"),
        ("The answer is 3.5 cm. That is all.", "3.5 cm"),
    ],
)  # fmt: skip
def test_the_gold_of_a_solution_stands_in_its_last_sentence(solution, gold):
    assert texts.read_gold(solution, is_solution=True) == gold


def test_numbers_of_charts_have_a_tolerance_but_years_do_not():
    chart = lambda gold: texts.normalise(
        Sample(question="?a", answer=gold, choices=(), tolerance=0.05)
    )
    found = {gold: chart(gold) for gold in ("12", "2009", "23.4", "7%", "blue", "Yes")}
    kinds = {gold: (made["kind"], made["tolerance"]) for gold, made in found.items()}
    assert kinds == {
        **{"12": ("float", 0.05), "2009": ("int", None), "23.4": ("float", 0.05)},
        **{"7%": ("float", 0.05), "blue": ("text", None), "Yes": ("yesno", None)},
    }


def test_one_question_has_one_key():
    asked = (
        "Hint: Please answer the question and provide the final answer at the end.\n"
        + "Question: Find  X.\nChoices:\nA: 30\nB: 45"
    )
    assert texts.key(asked) == "find x"
    assert texts.key("<image1>find x\n(A) 3\n(B) 4") == "find x"
    assert texts.key("What is x + 1?") == texts.key("what is x - 1") != "find x"
    assert texts.key("x + 1?", signs=True) != texts.key("x - 1", signs=True)
