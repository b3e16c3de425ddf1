import threading

import numpy as np
import pytest

from tests.trainer import small
from vade_jax.rewards import mix
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


def scores_of(judge, groups):
    """Reports the groups last first, as an engine may, and asks for the scores."""
    ahead = scoring.Ahead(judge, items())
    for m in reversed(range(len(groups))):
        ahead(m, [np.array([token]) for token in groups[m]])
    return ahead.scores(small.rollouts([len(group) for group in groups]))


def test_item_m_judges_the_answers_of_group_m():
    """Four answers to 7, two to B; a token is the index of a text."""
    decode = lambda tokens: "".join(TEXTS[t] for t in tokens)
    judge = scoring.make(decode, form="boxed", format_weight=0.1)
    scores = scores_of(judge, [[0, 1, 2, 3], [4, 5]])
    assert scores.text_N == list(TEXTS)
    assert scores.extracted_N == ["7", None, "7", "8", "B", "(b)"]
    np.testing.assert_array_equal(scores.correct_N, [1, 0, 1, 0, 1, 1])
    assert scores.reason_N == ["ok", "no_box", "ok", "different", "ok", "ok"]
    np.testing.assert_allclose(scores.reward_N, [1, 0, 1, 0.1, 1, 1], rtol=1e-6)
    assert scores.reward_N.dtype == scores.correct_N.dtype == np.float32


def test_the_form_has_its_weight():
    make = lambda weight: scoring.make(
        lambda tokens: r"\boxed{7}", form="think_boxed", format_weight=weight
    )
    # Right, without the thinking that the form asks for; wrong for the second item.
    np.testing.assert_allclose(scores_of(make(0.25), [[0], [0]]).reward_N, [0.75, 0])


def test_answers_that_were_not_compared_to_the_end_are_counted():
    reasons = iter(["timeout", "ok", "crash", "timeout", "different"])
    judge = lambda item, answers: [
        scoring.Judged("", None, 0.0, 0.0, reason=next(reasons)) for _ in answers
    ]
    found = scores_of(judge, [[0, 0, 0], [0, 0]]).metrics()
    assert found == {"reward/timeouts": 2, "reward/crashes": 1}


def test_length_moves_the_reward_and_not_what_is_correct():
    """Answers of 1, 3 and 4 tokens under a limit of 4 with a buffer of 2, twice the price."""
    decode = lambda tokens: TEXTS[tokens[0]]
    judge = scoring.make(
        decode,
        form="boxed",
        format_weight=0.1,
        by_length=lambda length: 2 * mix.overlong_penalty(length, 4, 2),
    )
    answers = [np.array([0]), np.array([0, 0, 0]), np.array([3, 0, 0, 0])]
    judged = judge(items()[0], answers)
    assert [answer.correct for answer in judged] == [1, 1, 0]
    rewards = [answer.reward for answer in judged]
    np.testing.assert_allclose(rewards, [1, 1 - 1, 0.1 - 2], atol=1e-12)


def test_answers_are_judged_while_the_engine_still_works():
    judged = threading.Event()

    def judge(item, answers):
        judged.set()
        return [scoring.Judged("", None, 1.0, 1.0) for _ in answers]

    ahead = scoring.Ahead(judge, items())
    ahead(1, [np.zeros(1, int)])
    assert judged.wait(10)  # nobody asked for the scores yet
    ahead(0, [np.zeros(1, int)])
    assert ahead.scores(small.rollouts([1, 1])).reward_N.sum() == 2


def test_an_error_of_the_judge_reaches_who_asks_for_the_scores():
    def judge(item, answers):
        raise KeyError("no such kind")

    with pytest.raises(KeyError, match="no such kind"):
        scores_of(judge, [[0], [0]])


def test_a_group_that_comes_twice_or_never_is_caught():
    judge = lambda item, answers: [scoring.Judged("", None, 0.0, 0.0) for _ in answers]
    ahead = scoring.Ahead(judge, items())
    ahead(0, [np.zeros(1, int)])
    with pytest.raises(AssertionError, match="came twice"):
        ahead(0, [np.zeros(1, int)])
    with pytest.raises(AssertionError, match="not reported"):
        ahead.scores(small.rollouts([1, 1]))
