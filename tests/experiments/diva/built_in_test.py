"""Texts of built-in items, found again from the item alone."""

import pytest

from experiments.diva import built_in
from vade_jax.data import procedural
from vade_jax.rewards import answers

STRATUM = {family: stratum for family, (_, _, stratum) in procedural.FAMILIES.items()}
PARTS = [part for part in procedural.PARTS if STRATUM[part[:-2]] != "text"]


@pytest.mark.parametrize("part", PARTS)
def test_every_item_has_five_other_wordings_and_four_steps(part):
    stratum = STRATUM[part[:-2]]
    source = procedural.Procedural(2, 12, "validation", mixture={part: 1})
    for index in range(12):
        item = source[index]
        found = built_in.texts(item)
        wordings = {answers.words(text) for text in (item.question, *found.paraphrases)}
        assert len(wordings) == (1 if stratum in ("rule", "handwritten") else 6)
        assert len(found.steps) == (4 if stratum in ("graded", "trivial") else 0)
        assert all(text[-1] in ".?" for text in (*found.paraphrases, *found.steps))


def right_number(steps):
    """Does what the last step of a sum or a difference says."""
    first, sign, second = steps[-1].rstrip(".").split()[-3:]
    return int(first) + int(second) * (1 if sign == "+" else -1)


@pytest.mark.parametrize("part", [p for p in PARTS if p[:-2] in ("count", "subtract", "triangle")])
def test_numbers_of_the_steps_lead_to_the_answer(part):
    source = procedural.Procedural(0, 20, mixture={part: 1})
    for index in range(20):
        item = source[index]
        assert right_number(built_in.texts(item).steps) == int(item.answer)


def test_no_steps_lead_to_a_wrong_gold():
    source = procedural.Procedural(0, 20, wrong_golds=1.0)
    found = [built_in.texts(source[index]) for index in range(20)]
    assert all(text.paraphrases and not text.steps for text in found)
