"""Reward functions before a run: what the user is told, and which mistakes end it."""

import pytest

from vade_jax.rewards import functions, trial
from vade_jax.types import Item

ITEM = Item(uid="row 3", question="<image>How many?", images=(), answer="7", kind="int")


def check(*parts):
    items = [ITEM, Item(uid="b", question="?", images=(), answer="", kind="")]
    judges = functions.SumOfJudges(
        [functions.UserFunction("mine.py:f", part, 5.0) for part in parts], [1.0] * len(parts)
    )
    return trial.check(judges, items, "think_boxed", lambda text: list(map(ord, text)))


def test_the_data_and_the_threshold_are_told():
    def f(completions, completion_ids, id, **_):
        told = functions.texts(completions)
        assert completion_ids == [list(map(ord, text)) for text in told]
        assert id[0] != "row 3" or told == ["<think>\n\n</think>\n\n\\boxed{7}", ""]
        return [float("7" in text) for text in told]

    said = check(f)
    assert "on 2 rows: the data's own answers get 0.5 on average, empty ones 0" in said
    assert "rewards alone: an answer counts as correct above reward.correct_above=0.5" in said
    assert "alone" not in check(f, lambda completions, **_: ([0, 0], [1, 0]))


def test_a_failure_is_a_mistake_of_the_user():
    with pytest.raises(ValueError, match=r"KeyError: 'gold'.*at row 'row 3'"):
        check(lambda **given: given["gold"])
    with pytest.raises(ValueError, match="no verdict on 2 rows"):
        check(lambda **_: [None, None])


def test_answers_without_a_verdict_are_counted():
    said = check(lambda **_: ([1.0, None], [1, None]))
    assert "get 1 on average, empty ones no verdict; no verdict on 2 of 4" in said


def paying(own, empty):
    """Returns a function of two rewards; the second row of the probe has no answer of its own."""
    return lambda completions, answer, **_: [
        (own if text and gold else 9.0 if text else empty)
        for text, gold in zip(functions.texts(completions), answer, strict=True)
    ]


@pytest.mark.parametrize(("own", "empty"), [(0.25, 0.75), (0.5, 0.5), (-1, 0), (-1, -1)])
def test_a_function_that_pays_empty_answers_as_much_is_a_warning(own, empty):
    *_, line = check(paying(own, empty)).splitlines()
    assert line.startswith(f"WARNING: reward.function pays the data's own answers {own} and empty")
    assert f"ones {empty}: a policy learns to answer nothing" in line


@pytest.mark.parametrize("empty", [0, 0.5])
def test_a_function_that_pays_nothing_for_any_own_answer_stops_the_run(empty):
    with pytest.raises(ValueError, match=rf"own answers on 1 rows earn 0, and empty ones {empty}:"):
        check(paying(0, empty))


def test_a_function_that_pays_own_answers_more_is_left_alone():
    for own, empty in ((1, 0), (0, -1), (0.2, 0.1), (None, 1), (0, None)):
        assert "WARNING" not in check(paying(own, empty))
    # Without answers in the data there is nothing to compare.
    judge = functions.SumOfJudges([functions.UserFunction("f", paying(0, 0), 5.0)], [1.0])
    item = Item(uid="b", question="?", images=(), answer="", kind="")
    assert "WARNING" not in trial.check(judge, [item], "boxed", lambda text: [])


def test_what_cannot_be_counted_is_a_mistake():
    class Counting:
        metrics = staticmethod(lambda: {"calls": {}})

        def __call__(self, completions, **_):
            return [1] * len(completions)

    with pytest.raises(ValueError, match=r"'mine.py:f', metrics\(\): \w+Error: "):
        check(Counting())
