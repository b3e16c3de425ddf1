"""Which wordings and hints may be used, by hand."""

import pytest

from experiments.diva import wordings
from vade_jax.types import Item


def item(question="How far is it?", answer="7", kind="int", **metadata):
    return Item("a", question, (), answer, kind, metadata)


ABC = item("Which is it?\n(A) a red cube\n(B) a cone\n(C) nothing", "B", "choice")


def test_wordings_are_read_and_the_others_have_a_reason():
    reply = (
        "Here they are:\n"
        "<wording> What is\nthe distance? </wording>\n1. <wording>HOW FAR IS IT</wording>"
        "<wording>what is the distance</wording><wording></wording>"
        "<wording>Is it 7 far? The answer is seven.</wording><wording>Cut off"
    )
    kept, reasons = wordings.read_wordings(reply, item(), 6)
    assert kept == ["What is\nthe distance?"]
    assert sorted(reasons) == ["same", "same", "states_answer", *["unreadable"] * 2]


def steps(*texts, box="7"):
    return "".join(f"<step>{t}</step>\n" for t in texts) + f"So \\boxed{{{box}}}."


def test_steps_of_a_right_solution_without_their_labels():
    reply = steps("Step 1: Look at the scale.", "2. Multiply the two.")
    kept = ["Look at the scale.", "Multiply the two."]
    assert wordings.read_steps(reply, item(), 5) == (kept, "")
    assert wordings.read_steps(reply, item(), 1) == (kept[:1], "")


def test_steps_end_before_the_one_that_states_the_answer():
    reply = steps("Look at the scale.", "It shows 7 km.", "Check the unit.")
    assert wordings.read_steps(reply, item(), 5) == (["Look at the scale."], "")
    reply = steps("It shows seven km.", "Check the unit.")
    assert wordings.read_steps(reply, item(), 5) == ([], "states_answer")


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (steps("Look.", box="8"), "wrong_answer"),
        ("<step>Look.</step> It is 7.", "answer_no_box"),
        (steps("Look.", box="many"), "answer_unreadable"),
        ("Look. \\boxed{7}", "unreadable"),
    ],
)
def test_other_replies_give_no_steps_and_a_reason(reply, reason):
    assert wordings.read_steps(reply, item(), 5) == ([], reason)


@pytest.mark.parametrize(
    ("text", "asked", "expected"),
    [
        (r"Hence \boxed{x}", item(), True),
        ("The length is 7.", item(), True),
        ("Take 70, 17 and 0.7, or x7", item(), False),
        (r"that is \frac{1}{4}", item(answer="0.25", kind="float"), True),
        # named by the question: only where it is announced
        ("Compare 3 and 7.", item("Which is larger, 3 or 7?"), False),
        ("Compare them. Therefore it is 7.", item("Which is larger, 3 or 7?"), True),
        # letters and options
        ("The answer is B.", ABC, True),
        ("So the correct one is the red cube.", ABC, False),
        # words
        ("The answer is no.", item(answer="no", kind="yesno"), True),
        ("There are no two equal sides.", item(answer="no", kind="yesno"), False),
    ],
)
def test_whether_a_text_states_the_answer(text, asked, expected):
    assert wordings.gives_away(text, asked) is expected
