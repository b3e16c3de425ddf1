"""A table of keys, each with what is right and what is wrong for it, as a careful mathematician would say."""

import pathlib

import pytest

from vade_jax.rewards import verify

TABLE = pathlib.Path(__file__).with_name("verdicts.txt").read_text("utf-8")
BLOCKS = [block.split("\n") for block in TABLE.strip().split("\n\n")[1:]]


def test_the_table_is_large_and_half_of_it_is_wrong():
    signs = [line[0] for _, *lines in BLOCKS for line in lines]
    assert len(signs) > 800 and 0.3 < signs.count("-") / len(signs) < 0.7


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block[0])
def test_right_is_right_and_wrong_is_wrong(block):
    head, *lines = block
    kind, key = head.split(": ", 1)
    for line in lines:
        verdict = verify.verify(f"\\boxed{{{line[2:]}}}", key, kind)
        assert verdict.correct == (line[0] == "+"), line
