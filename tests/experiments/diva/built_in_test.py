"""Texts of built-in items, found again from the item alone."""

import dataclasses

import numpy as np
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


@pytest.mark.parametrize(
    "part", [p for p in PARTS if p[:-2] in ("color", "shape", "value", "written")]
)
def test_the_last_step_leaves_two_and_the_answer_is_one_of_them(part):
    source = procedural.Procedural(0, 20, mixture={part: 1})
    for index in range(20):
        item = source[index]
        last = built_in.texts(item).steps[-1].rstrip(".")
        two = last.removeprefix("It is ").split(" or ")
        assert len(two) == len(set(two)) == 2 and item.answer in two


def test_the_other_families_by_their_steps():
    for index in range(20):
        item = procedural.Procedural(0, 20, mixture={"compare_1": 1})[index]
        words = built_in.texts(item).steps[-1].rstrip("?").split()
        assert (int(words[1]) > int(words[-1])) == (item.answer == "yes")
        item = procedural.Procedural(0, 20, mixture={"table_2": 1})[index]
        _, row, _, place = built_in.texts(item).steps
        numbers = row.rstrip(".").split(" is ")[1].split(", ")
        assert numbers[int(place.split()[3]) - 1] == item.answer
        item = procedural.Procedural(0, 20, mixture={"extreme_2": 1})[index]
        _, first, second, which = built_in.texts(item).steps
        bars = f"{first} {second}".replace("Bar ", "").replace(".", ",").split(",")
        heights = dict(bar.split(" is ") for bar in map(str.strip, bars) if bar)
        pick = max if "largest" in which else min
        assert pick(heights, key=lambda k: int(heights[k])) == item.answer


def test_no_steps_lead_to_a_wrong_gold():
    source = procedural.Procedural(0, 20, wrong_golds=1.0)
    found = [built_in.texts(source[index]) for index in range(20)]
    assert all(text.paraphrases and not text.steps for text in found)


def test_small_letters_get_no_grains_and_a_lone_digit_no_turn():
    item = procedural.Procedural(0, 1)[0]
    of = lambda family: built_in.allowed(dataclasses.replace(item, metadata={"family": family}))
    assert of("color") == {*("rotate", "write", "gaussian", "salt_pepper", "speckle", "blur")}
    for family in ("value", "extreme", "triangle", "table"):
        assert of(family) == {"rotate", "write", "blur"}
    assert "rotate" not in of("written") and "gaussian" in of("written")
    assert np.all([of(part[:-2]) for part in PARTS])
