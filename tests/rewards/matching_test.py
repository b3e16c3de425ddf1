"""The verdict on generated pairs: an answer in other words is right, one with a part changed is not."""

import pytest

from tests.rewards import pairs
from vade_jax.rewards import verify


def check(count, seed):
    wrong, missed = [], []
    for pair in pairs.pairs(count, seed):
        verdict = verify.verify(f"\\boxed{{{pair.given}}}", pair.key, pair.kind)
        if verdict.correct and not pair.right:
            wrong.append(pair)
        elif pair.right and not verdict.correct:
            missed.append((pair, verdict.reason))
    assert not wrong and not missed


def test_changed_answers_are_wrong_and_reworded_ones_right():
    check(500, seed=0)


@pytest.mark.slow
def test_many_changed_answers_are_wrong_and_reworded_ones_right():
    check(20_000, seed=1)
