"""Functions of a user: what they get and return, several of them, and how they fail."""

import asyncio
import dataclasses
import math
import sys
import threading

import PIL.Image
import pytest

from vade_jax.rewards import functions
from vade_jax.rewards.functions import RewardFailure, SumOfJudges, UserFunction
from vade_jax.types import Item

ITEM = Item(
    uid="row 3",
    question="<image>How many?",
    images=(),
    answer="7",
    kind="int",
    metadata={"level": 2},
    columns={"answer": 7, "source": "mine", "level": None},
)
TEXTS = [r"\boxed{7}", "no idea", r"\boxed{8}"]
TOKENS = [[1, 2], [3], [4, 5, 6]]


def judge(function, timeout_s=5.0, name="mine.py:f"):
    return UserFunction(name, function, timeout_s)


def judged(function, **options):
    return [(x.reward, x.correct) for x in judge(function, **options)(ITEM, TEXTS, TOKENS)]


@pytest.fixture
def own(tmp_path):
    """Returns functions of a user's file, by their names."""

    def make(code, *names):
        (tmp_path / "own.py").write_text(code)
        places = [f"{tmp_path}/own.py:{name}" for name in names or ["f"]]
        made = [UserFunction(place, place, 5.0) for place in places]
        return made if names else made[0]

    return make


def rewards(function, answers=TEXTS, item=ITEM):
    return [one.reward for one in function(item, answers, None)]


def test_it_gets_what_trl_gives_and_the_columns_of_the_file():
    expected = {
        "prompts": [[{"role": "user", "content": "<image>How many?"}]] * 3,
        "completions": [[{"role": "assistant", "content": text}] for text in TEXTS],
        "completion_ids": TOKENS,
        "id": ["row 3"] * 3,
        "question": ["<image>How many?"] * 3,
        "answer": [7] * 3,  # as the file has it
        "kind": ["int"] * 3,
        "level": [2] * 3,  # the file's is empty
        "source": ["mine"] * 3,
    }
    assert judged(lambda **arguments: [float(arguments == expected)] * 3) == [(1, None)] * 3
    assert functions.texts(expected["completions"]) == TEXTS
    assert functions.texts(["plain"]) == ["plain"]
    parts = [{"type": "image"}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert functions.texts([[{"role": "user", "content": parts}]]) == ["ab"]


def test_rewards_alone_or_with_what_is_correct():
    assert judged(lambda **_: [1, 0.5, -2]) == [(1, None), (0.5, None), (-2, None)]
    assert judged(lambda **_: ([3, 1, 0], [True, False, 1])) == [(3, 1), (1, 0), (0, 1)]
    first, second, third = judged(lambda **_: ([None, 1, 1], [1, None, 0]))
    assert math.isnan(first[0]) and first[1] == 1
    assert second[0] == 1 and math.isnan(second[1])
    assert third == (1, 0)


def test_two_rewards_in_a_tuple_are_no_pair():
    found = judge(lambda **_: (0.25, None))(ITEM, TEXTS[:2], TOKENS[:2])
    assert found[0] == functions.Judgement(0.25, None)
    assert math.isnan(found[1].reward)


def test_it_may_be_async_and_so_may_an_object():
    async def f(completions, **_):
        await asyncio.sleep(0)
        return [0.5] * len(completions)

    class Object:
        async def __call__(self, **given):
            return await f(**given)

    assert judged(f) == judged(Object()) == [(0.5, None)] * 3


# ------------------------------------------------------------------------------ several
def several(*parts, **options):
    made = [part if isinstance(part, UserFunction) else judge(part) for part in parts]
    weights = options.pop("weights", [1.0] * len(parts))
    return SumOfJudges(made, weights, **options)(ITEM, TEXTS, TOKENS)


def test_rewards_are_added_up_and_a_threshold_says_what_is_correct():
    """2 x (1, 0.25, 0) + 0.5 x (-1, 0, 4) = (1.5, 0.5, 2)."""
    found = several(
        lambda **_: [1, 0.25, 0], lambda **_: [-1, 0, 4], weights=(2, 0.5), correct_above=1.6
    )
    assert [(x.reward, x.correct) for x in found] == [(1.5, 0), (0.5, 0), (2, 1)]
    above = several(lambda **_: [0.5, 0.51, 0])
    assert [x.correct for x in above] == [0, 1, 0]


def test_the_first_that_says_what_is_correct_is_believed():
    found = several(
        lambda **_: [9, 9, 9], lambda **_: ([0, 0, 0], [0, 1, 0]), lambda **_: ([0] * 3, [1] * 3)
    )
    assert [x.correct for x in found] == [0, 1, 0]


def test_the_rules_are_a_judge_like_others():
    rules = functions.by_rules("boxed", 0.1)
    item = Item(uid="a", question="?", images=(), answer="7", kind="int")
    both = SumOfJudges([judge(lambda **_: [0.5] * 3), rules], [1, 1])(item, TEXTS, TOKENS)
    assert [x.correct for x in both] == [1, 0, 0]
    assert [x.reward for x in both] == pytest.approx([1.5, 0.5, 0.6])
    assert [x.extracted for x in both] == ["7", None, "8"]
    assert [x.reason for x in both] == ["ok", "no_box", "different"]


def test_no_verdict_of_one_leaves_the_others_and_of_all_none():
    found = several(lambda **_: [None, None, 1], lambda **_: [0.75, None, 1])
    assert [x.is_known for x in found] == [True, False, True]
    assert (found[0].reward, found[0].correct, found[2].reward) == (0.75, 1, 2)
    assert found[1].reason == "no_verdict"
    unsure = several(lambda **_: ([1, 1, 1], [1, None, 0]), lambda **_: [1, 1, 1])
    assert [x.is_known for x in unsure] == [True, False, True]


# ------------------------------------------------------------------------------ failures
def test_an_exception_names_the_function_the_row_and_the_answer(own):
    f = own(
        "from vade_jax.rewards import functions\n"
        "def f(completions, **_):\n"
        "    return [1 / (text != 'no idea') for text in functions.texts(completions)]\n"
    )
    with pytest.raises(RewardFailure) as caught:
        f(ITEM, TEXTS, TOKENS)
    said = str(caught.value)
    assert "own.py:f': ZeroDivisionError: division by zero (own.py, line 3)" in said
    assert said.endswith("at row 'row 3', answer 'no idea'") and "\n" not in said


def test_a_function_that_exits_is_named_like_one_that_raises():
    async def leaves(**_):
        sys.exit(3)

    for function in (lambda **_: sys.exit(3), leaves):
        with pytest.raises(RewardFailure, match=r"'mine.py:f': .*SystemExit: 3"):
            judged(function)

    async def stays(completions, **_):
        return [1.0] * len(completions)

    assert judged(stays)  # in the same loop


def test_a_function_that_cannot_be_sent_says_so():
    lock = threading.Lock()
    with pytest.raises(RewardFailure, match=r"TypeError: cannot pickle .* give its place instead"):
        judged(lambda **_: [lock] * 3)


def test_columns_may_hold_pictures_and_bytes():
    columns = {"image": PIL.Image.new("RGB", (3, 5), "red"), "raw": b"\xff\x00"}
    item = dataclasses.replace(ITEM, columns=columns)
    f = lambda image, raw, **_: [x.getpixel((2, 4))[0] + len(y) for x, y in zip(image, raw)]  # noqa: B905
    assert rewards(judge(f), item=item) == [257] * 3


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1, 2], "2 rewards for 3 answers"),
        (None, "returned NoneType, no list of rewards"),
        ({1, 2, 3}, "returned set, no list"),  # which has no order
        ([1, math.inf, 2], "infinite rewards"),
        (([1, 2, 3], [1, 0]), "2 values of correct for 3 answers"),
        (([1, 2, 3], [1, 0.5, 0]), r"correct=0.5: must be True, False or None"),
    ],
)
def test_what_cannot_be_read_is_an_error(returned, message):
    with pytest.raises(RewardFailure, match=message):
        judged(lambda **_: returned)


# ------------------------------------------------------------------------------ where it comes from
def test_a_file_is_imported_once_and_finds_its_neighbours(own, tmp_path):
    (tmp_path / "next_to_it.py").write_text("VALUE = 0.5\n")
    code = (
        "import next_to_it\ncalls = []\n"
        "def f(completions, **_):\n"
        "    calls.append(1)\n    return [next_to_it.VALUE] * len(completions)\n"
        "g = lambda completions, **_: [len(calls)] * len(completions)\n"
    )
    f, g = own(code, "f", "g")
    assert rewards(f) == rewards(f) == [0.5] * 3
    assert rewards(g) == [2] * 3  # functions of one file share what it has
    # So do those of training, of validation and of the check before.
    again = UserFunction(g.name, functions.load(g.name), 5.0)
    assert rewards(again) == [2] * 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("f", r"reward.function='f': write path/to/file.py:NAME or module:NAME, or 'rules'"),
        ("{}:g", r"has no 'g': it has VALUE, fine"),
        ("{}:VALUE", "it is int, not a function"),
    ],
)
def test_a_wrong_name_is_one_clear_line(tmp_path, name, message):
    path = tmp_path / "own.py"
    path.write_text("VALUE = 1\ndef fine(**kwargs):\n    return []\n")
    with pytest.raises(ValueError, match=message) as caught:
        functions.load(name.format(path))
    assert "\n" not in str(caught.value)


COUNTING = """
class Counting:
    calls = 0

    def __call__(self, completions, **_):
        self.calls += 1
        return [1] * len(completions)

    def metrics(self):
        return {"calls": self.calls}

f, g = Counting(), lambda completions, **_: [0] * len(completions)
"""


def test_what_a_function_counts_has_its_name(own):
    both = SumOfJudges([*own(COUNTING, "f", "g"), functions.by_rules("boxed", 0.1)], [1, 1, 1])
    for _ in range(2):
        both(ITEM, TEXTS, TOKENS)
    assert both.metrics() == {"reward/f/calls": 2}


def test_what_cannot_be_counted_costs_no_run(own, caplog):
    f = own(COUNTING.replace('{"calls": self.calls}', "{'calls': {}}"))
    assert rewards(f) == [1] * 3
    assert SumOfJudges([f], [1]).metrics() == {"reward/f/metrics_failed": 1}
    assert "own.py:f', metrics(): " in caplog.text


def test_two_functions_of_one_name_count_apart(own, tmp_path):
    own(COUNTING)
    (tmp_path / "two.py").write_text(COUNTING.replace("f, g =", "g, f ="))
    places = [f"{tmp_path}/{place}" for place in ("own.py:f", "two.py:f", "two.py:g")]
    judges = [UserFunction(place, place, 9.0) for place in places]
    for one in judges:
        rewards(one)
    counts = {"reward/own.f/calls": 1, "reward/g/calls": 1}
    assert SumOfJudges(judges, [1.0] * 3).metrics() == counts


def test_a_function_that_changes_what_it_is_given_changes_no_other_verdict():
    item = dataclasses.replace(ITEM, columns={"tests": ["x"]})
    empties = judge(lambda tests, **_: [float(bool(of and of.pop())) for of in tests])
    for _ in range(2):
        assert [one.reward for one in empties(item, TEXTS, None)] == [1, 1, 1]
