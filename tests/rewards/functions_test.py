"""Functions of a user: what they get and return, several of them, and where they come from."""

import functools
import math
import threading

import pytest

from tests.rewards import own
from tests.rewards.own import ITEM, TEXTS, rewards
from vade_jax.rewards import functions
from vade_jax.rewards.functions import RewardFailure, SumOfJudges, UserFunction
from vade_jax.types import Item

TOKENS = [[1, 2], [3], [4, 5, 6]]


@pytest.fixture
def judge(tmp_path):
    return functools.partial(own.of_body, tmp_path)


@pytest.fixture
def of_file(tmp_path):
    return functools.partial(own.of_file, tmp_path)


def judged(function):
    return [(x.reward, x.correct) for x in function(ITEM, TEXTS, TOKENS)]


def test_it_gets_what_trl_gives_and_the_columns_of_the_file(judge):
    expected = {
        "prompts": [[{"role": "user", "content": "<image>How many?"}]] * 3,
        "completion_ids": TOKENS,
        "id": ["row 3"] * 3,
        "question": ["<image>How many?"] * 3,
        "answer": [7] * 3,  # as the file has it
        "kind": ["int"] * 3,
        "level": [2] * 3,  # the file's is empty
        "source": ["mine"] * 3,
    }
    chats = [[{"role": "assistant", "content": text}] for text in TEXTS]
    is_right = judge(f"return [float(columns == {expected} and completions == {chats})] * 3")
    assert judged(is_right) == [(1, None)] * 3
    assert functions.texts(chats) == TEXTS and functions.texts(["plain"]) == ["plain"]
    parts = [{"type": "image"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert functions.texts([[{"role": "user", "content": parts}]]) == ["ab"]


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        ("[1, 0.5, -2]", [(1, None), (0.5, None), (-2, None)]),
        ("([3, 1, 0], [True, False, 1])", [(3, 1), (1, 0), (0, 1)]),
        ("([None, 1, 1], [1, None, 0])", [("nan", 1), (1, "nan"), (1, 0)]),
        ("(0.25, None, 1)", [(0.25, None), ("nan", None), (1, None)]),  # a tuple of rewards is no pair
    ],
)  # fmt: skip
def test_rewards_alone_or_with_what_is_correct(judge, returned, expected):
    is_nan = lambda x: x is not None and math.isnan(x)
    judgements = [
        tuple("nan" if is_nan(x) else x for x in pair)
        for pair in judged(judge(f"return {returned}"))
    ]
    assert judgements == expected


@pytest.mark.parametrize(
    "returned",
    ["[1, 2]", "None", "{1, 2, 3}", "[1, math.inf, 2]", "([1, 2, 3], [1, 0])", "([1, 2, 3], [1, 0.5, 0])"],
)  # fmt: skip
def test_what_cannot_be_read_is_an_error(judge, returned):
    with pytest.raises(RewardFailure, match=r"ValueError: it returned .*at row 'row 3'"):
        judged(judge(f"return {returned}"))


# ------------------------------------------------------------------------------ several
def test_rewards_are_added_up_and_a_threshold_says_what_is_correct(judge):
    """2 x (1, 0.25, 0) + 0.5 x (-1, 0, 4) = (1.5, 0.5, 2)."""
    first, second = judge("return [1, 0.25, 0]"), judge("return [-1, 0, 4]")
    judgements = judged(SumOfJudges([first, second], (2, 0.5), correct_above=1.6))
    assert judgements == [(1.5, 0), (0.5, 0), (2, 1)]
    assert [x for _, x in judged(SumOfJudges([judge("return [0.5, 0.51, 0]")], [1]))] == [0, 1, 0]


def test_the_first_that_says_what_is_correct_is_believed(judge):
    bodies = "[9, 9, 9]", "([0, 0, 0], [0, 1, 0])", "([0] * 3, [1] * 3)"
    judgements = judged(SumOfJudges([judge(f"return {x}") for x in bodies], [1, 1, 1]))
    assert [correct for _, correct in judgements] == [0, 1, 0]


def test_the_rules_are_a_judge_like_others(judge):
    rules = functions.by_rules("boxed", 0.1)
    item = Item(uid="a", question="?", images=(), answer="7", kind="int")
    both = SumOfJudges([judge("return [0.5] * 3"), rules], [1, 1])(item, TEXTS, TOKENS)
    assert [x.correct for x in both] == [1, 0, 0]
    assert [x.reward for x in both] == pytest.approx([1.5, 0.5, 0.6])
    text = "The 7 is \\boxed{7}, I think"  # right, in another form
    assert rules(item, [text], None)[0].reward == pytest.approx(0.9)
    assert [x.extracted for x in both] == ["7", None, "8"]
    assert [x.reason for x in both] == ["ok", "no_box", "different"]


def test_no_verdict_of_one_leaves_the_others_and_of_all_none(judge):
    both = SumOfJudges([judge("return [None, None, 1]"), judge("return [0.75, None, 1]")], [1, 1])
    judgements = both(ITEM, TEXTS, TOKENS)
    assert [x.is_known for x in judgements] == [True, False, True]
    assert (judgements[0].reward, judgements[0].correct, judgements[2].reward) == (0.75, 1, 2)
    assert judgements[1].reason == "no_verdict"
    unsure = SumOfJudges([judge("return [1] * 3, [1, None, 0]"), judge("return [1] * 3")], [1, 1])
    assert [x.is_known for x in unsure(ITEM, TEXTS, TOKENS)] == [True, False, True]


# ------------------------------------------------------------------------------ where it comes from
def test_a_function_itself_is_sent_if_it_can_be():
    half, lock = 0.5, threading.Lock()
    assert rewards(UserFunction("half", lambda **_: [half] * 3, 5.0)) == [0.5] * 3
    with pytest.raises(RewardFailure, match=r"'mine': .*cannot pickle"):
        rewards(UserFunction("mine", lambda **_: [lock] * 3, 5.0))


def test_a_file_is_imported_once_and_finds_its_neighbours(of_file, tmp_path):
    (tmp_path / "next_to_it.py").write_text("VALUE = 0.5\n")
    code = (
        "import next_to_it\ncalls = []\n"
        "def f(completions, **_):\n"
        "    calls.append(1)\n    return [next_to_it.VALUE] * len(completions)\n"
        "g = lambda completions, **_: [len(calls)] * len(completions)\n"
    )
    f, g = of_file(code, "f", "g")
    assert rewards(f) == rewards(f) == [0.5] * 3
    assert rewards(g) == [2] * 3  # functions of one file share what it has
