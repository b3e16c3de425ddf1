"""Whole groups of rows that pictures connect, and the share that they make."""

import random

import pytest

from vade_jax.data import splits


def test_pictures_that_a_row_connects_stay_together():
    draw = random.Random(1)
    rows = [
        {
            "uid": f"{i:03}",
            "pictures": [f"p{draw.randrange(80)}" for _ in range(1 + i % 2)],
        }
        for i in range(120)
    ]
    train, held = splits.split(rows, share=0.1, seed=0)
    assert sorted(r["uid"] for r in (*train, *held)) == [f"{i:03}" for i in range(120)]
    assert 0 < len(held) <= 12
    shown = [{p for row in part for p in row["pictures"]} for part in (train, held)]
    assert not shown[0] & shown[1]
    for part in (train, held):
        assert [r["uid"] for r in part] == sorted(r["uid"] for r in part)


@pytest.mark.parametrize("seed", range(3))
def test_lone_pictures_give_the_share_exactly(seed):
    rows = [{"uid": f"{i:05}", "pictures": [f"p{i}"]} for i in range(9471)]
    train, held = splits.split(rows, share=0.1, seed=seed)
    assert (len(train), len(held)) == (8524, 947)
    backwards = splits.split(rows[::-1], share=0.1, seed=seed)
    assert backwards == (train, held)
