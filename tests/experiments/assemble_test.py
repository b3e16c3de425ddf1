"""What a config's reward and loss options become."""

import types

import numpy as np
import pytest

from configs import tiny_gspo
from experiments import assemble
from tests.trainer import small
from vade_jax.types import Item


def judge(**reward):
    c = tiny_gspo.get_config()
    c.reward.update(reward)
    tokenizer = types.SimpleNamespace(decode=lambda tokens: "\\boxed{7}")
    return assemble.judge(c, types.SimpleNamespace(tokenizer=tokenizer))


@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ({}, [1, 1, 1]),
        ({"overlong_buffer": 4}, [1, 0.5, 0]),
        ({"overlong_buffer": 4, "overlong_factor": 0.5}, [1, 0.75, 0.5]),
    ],
)
def test_answers_near_the_limit_of_8_tokens_cost(reward, expected):
    item = Item(uid="a", question="?", images=(), answer="7", kind="int")
    answers = [np.zeros(length, int) for length in (4, 6, 8)]
    judged = judge(**reward)(item, answers)
    assert [answer.reward for answer in judged] == expected
    assert [answer.correct for answer in judged] == [1, 1, 1]


def test_answers_that_were_cut_off_are_not_trained_on():
    seen = []

    def improve(state, prompts, rollouts, advantage_N):
        seen.append((rollouts.valid_N.tolist(), rollouts.finished_N.tolist()))
        assert advantage_N == "advantages"  # of all answers
        return state, {}

    rollouts = small.rollouts([2, 2]).replace(
        finished_N=np.array([True, False, True, False]),
        valid_N=np.array([True, True, False, False]),
    )
    learn = assemble.without_cut_off(improve)
    assert learn("state", [], rollouts, "advantages") == ("state", {})
    assert seen == [([True, False, False, False], [True, False, True, False])]
    assert rollouts.valid_N.tolist() == [True, True, False, False]  # as it was
