"""A user's variant with another answer is counted, not trained on."""

import dataclasses

import pytest

from vade_jax.data import variants
from vade_jax.types import Item

ITEM = Item("a", "Why?", (), "1", "float", {"tolerance": 0.1})


@pytest.mark.parametrize(
    "change",
    [
        {"answer": "2"},
        {"kind": "int"},
        {"metadata": {}},
        {"metadata": {"tolerance": 0.1, "choices": ["1", "2"]}},
    ],
)
def test_what_grading_reads_must_not_change(change):
    guarded = variants.Guarded(
        lambda item, difficulty, wanted, rng: (
            dataclasses.replace(item, question="So?", **change),
            wanted,
        )
    )
    assert guarded(ITEM, 5.0, 7.0, None) == (ITEM, 5.0)
    assert guarded.counts == {"changed_answer": 1}


def test_other_questions_and_difficulties_pass():
    other = dataclasses.replace(ITEM, question="So?", uid="b")
    guarded = variants.Guarded(lambda *_: (other, 6.5))
    assert guarded(ITEM, 5.0, 7.0, None) == (other, 6.5)
    assert not guarded.counts
