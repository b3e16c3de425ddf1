"""Wrong golds: which items, what they become, and that nothing else changes."""

import numpy as np
import pytest

from vade_jax.data import procedural
from vade_jax.rewards import verify

PARTS = [
    (f, level) for f, (_, n, _) in procedural.FAMILIES.items() for level in range(n)
]


def _items(source):
    return [source[i] for i in range(len(source))]


def _wrong(source):
    return [i for i, x in enumerate(_items(source)) if x.metadata.get("mislabelled")]


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_a_wrong_gold_is_plausible_and_rejects_the_right_answer(part):
    source = procedural.Procedural(1, 25, mixture={part: 1})
    answers = {
        x.answer for x in _items(procedural.Procedural(2, 400, mixture={part: 1}))
    }
    plausible = 0
    for right, wrong in zip(
        _items(source), _items(procedural.Mislabelled(source, 1.0, 1)), strict=True
    ):
        assert wrong.metadata["mislabelled"]
        assert wrong.metadata["right_answer"] == right.answer
        assert verify.verify_item(procedural.target_text(wrong), wrong).correct
        assert not verify.verify_item(procedural.target_text(right), wrong).correct
        assert not verify.verify_item(procedural.target_text(wrong), right).correct
        plausible += wrong.answer in answers
    assert plausible >= (5 if part == ("hidden", 0) else 20)


def test_nothing_else_changes():
    plain = _items(procedural.Procedural(3, 60))
    some = _items(procedural.Mislabelled(procedural.Procedural(3, 60), 0.3, 3))
    for a, b in zip(plain, some, strict=True):
        assert (a.uid, a.question, a.kind) == (b.uid, b.question, b.kind)
        np.testing.assert_array_equal(np.asarray(a.images[0]), np.asarray(b.images[0]))
        if b.metadata.get("mislabelled"):
            assert set(b.metadata) - set(a.metadata) == {"mislabelled", "right_answer"}
        else:
            assert (a.answer, a.metadata) == (b.answer, b.metadata)


def test_the_same_items_whatever_the_size_and_more_of_them_at_a_larger_share():
    source = procedural.Procedural(0, 1000)
    few = procedural.Mislabelled(source, 0.1, 0)
    wrong = _wrong(few)
    assert 70 < len(wrong) < 130  # 100 +- 3 standard deviations
    assert few.count() == len(wrong)
    small = procedural.Mislabelled(procedural.Procedural(0, 400), 0.1, 0)
    assert _wrong(small) == [i for i in wrong if i < 400]
    assert set(wrong) < set(_wrong(procedural.Mislabelled(source, 0.2, 0)))
    assert wrong != _wrong(procedural.Mislabelled(source, 0.1, 1))
    assert _wrong(procedural.Mislabelled(source, 0.0, 0)) == []
    assert few[7].answer == few[np.int32(7)].answer


def test_a_share_is_one():
    with pytest.raises(ValueError, match=r"share=1.5 must be in 0 .. 1"):
        procedural.Mislabelled(procedural.Procedural(0, 4), 1.5, 0)
    with pytest.raises(IndexError):
        procedural.Mislabelled(procedural.Procedural(0, 4), 1.0, 0)[4]
