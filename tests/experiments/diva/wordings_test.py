"""Which wordings and hints may be used, by hand."""

import pytest

from experiments.diva import wordings
from vade_jax.types import Item


def item(question="How far is it?", answer="7", kind="int", **metadata):
    return Item("a", question, (), answer, kind, metadata)


ABC = item("Which is it?\n(A) a red cube\n(B) a cone\n(C) nothing", "B", "choice")


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
