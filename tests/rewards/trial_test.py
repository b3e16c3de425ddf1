"""Reward functions before a run: what the user reads, and which mistakes end it."""

import pytest

from tests.rewards import own
from vade_jax.rewards import functions, trial
from vade_jax.types import Item

ITEM = Item(uid="row 3", question="<image>How many?", images=(), answer="7", kind="int")
UNANSWERED = Item(uid="b", question="?", images=(), answer="", kind="")


@pytest.fixture
def check(tmp_path):
    def check(*bodies, items=(ITEM, UNANSWERED)):
        judges = [own.of_body(tmp_path, body) for body in bodies]
        judge = functions.SumOfJudges(judges, [1.0] * len(judges))
        return trial.check(judge, items, "think_boxed", lambda text: list(map(ord, text)))

    return check


def test_rewards_of_own_and_empty_answers_are_shown(check):
    is_seven = (
        "assert columns['completion_ids'] == [list(map(ord, text)) for text in texts]\n"
        r"assert columns['id'][0] != 'row 3' or texts == ['<think>\n\n</think>\n\n\\boxed{7}', '']"
        "\nreturn [0.4 * ('7' in text) for text in texts]"
    )
    line = check(is_seven)
    assert "on 2 rows: the data's own answers get 0.4 on average" in line
    assert "0% of them count as correct; empty ones get 0" in line
    assert "100% of them count" in check(is_seven, "return [0, 0], [1, 0]")


def test_a_function_without_any_verdict_stops_the_run(check):
    with pytest.raises(ValueError, match="no verdict on 2 rows"):
        check("return [None, None]")


def paying(answered, empty):
    """Returns a body of two rewards; the second row of the trial has no answer of its own."""
    return (
        f"return [({answered} if text and gold else 9.0 if text else {empty})"
        " for text, gold in zip(texts, columns['answer'])]"
    )


@pytest.mark.parametrize(("answered", "empty"), [(0.25, 0.75), (0.5, 0.5), (-1, 0), (-1, -1)])
def test_a_function_that_pays_empty_answers_as_much_is_a_warning(check, answered, empty):
    *_, line = check(paying(answered, empty)).splitlines()
    assert line.startswith("WARNING: reward.function pays the data's own answers")
    assert f" {answered} and empty ones {empty}: a policy learns to answer nothing" in line


@pytest.mark.parametrize("empty", [0, 0.5])
def test_a_function_that_pays_nothing_for_any_own_answer_stops_the_run(check, empty):
    with pytest.raises(ValueError, match=rf"own answers on 1 rows earn 0, and empty ones {empty}:"):
        check(paying(0, empty))


def test_a_function_that_pays_own_answers_more_is_left_alone(check):
    for answered, empty in ((1, 0), (0, -1), (0.2, 0.1), (None, 1), (0, None)):
        assert "WARNING" not in check(paying(answered, empty))
    # Without answers in the data there is nothing to compare.
    assert "WARNING" not in check(paying(0, 0), items=[UNANSWERED])
