"""The texts of each published subset, and what has to become of them."""

import pytest

from experiments.vade_9k import texts
from experiments.vade_9k.texts import Sample


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
