import numpy as np

from tests.trainer import small
from vade_jax.trainer import scoring
from vade_jax.types import Item

TEXTS = (
    r"\boxed{7}",
    "7",
    r"I say \boxed{7}",
    r"\boxed{8}",
    r"\boxed{B}",
    r"\boxed{(b)}.",
)


def items():
    return [
        Item(uid="a", question="?", images=(), answer="7", kind="int"),
        Item(uid="b", question="?", images=(), answer="B", kind="choice"),
    ]


def test_item_m_judges_the_answers_of_group_m():
    """Four answers to 7, two to B; token n is the index of a text, behind it is padding."""
    rollouts = small.rollouts([4, 2]).replace(
        token_NT=np.stack([np.arange(6), np.full(6, 99)], 1), length_N=np.ones(6, int)
    )
    decode = lambda tokens: "".join(TEXTS[t] for t in tokens)
    scores = scoring.make(decode, form="boxed", format_weight=0.1)(items(), rollouts)
    assert scores.text_N == list(TEXTS)
    assert scores.extracted_N == ["7", None, "7", "8", "B", "(b)"]
    np.testing.assert_array_equal(scores.correct_N, [1, 0, 1, 0, 1, 1])
    np.testing.assert_allclose(scores.reward_N, [1, 0, 1, 0.1, 1, 1], rtol=1e-6)
    assert scores.reward_N.dtype == scores.correct_N.dtype == np.float32


def test_the_form_has_its_weight():
    rollouts = small.rollouts([1, 1]).replace(
        token_NT=np.zeros((2, 1), int), length_N=np.ones(2, int)
    )
    texts = [r"\boxed{7}"]
    make = lambda weight: scoring.make(
        lambda tokens: texts[tokens[0]], form="think_boxed", format_weight=weight
    )
    # Right, without the thinking that the form asks for; wrong for the second item.
    np.testing.assert_allclose(make(0.25)(items(), rollouts).reward_N, [0.75, 0])
