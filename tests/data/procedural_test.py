"""Built-in data: determinism, separate splits, right answers, mixture, and what is wrong on purpose."""

import collections
import re
import zlib

import numpy as np
import pytest
from scipy import ndimage

from vade_jax.data import procedural
from vade_jax.data.procedural import canvas, handwriting
from vade_jax.rewards import verify

STRATUM = {family: stratum for family, (_, _, stratum) in procedural.FAMILIES.items()}
TEXTS = [f"{f}_{n}" for f, n in procedural.PARTS.values() if STRATUM[f] == "text"]


def only(part, size=40, seed=1, **options):
    return [*procedural.Procedural(seed, size, mixture={part: 1}, **options)]


def pixels(item):
    return np.asarray(item.images[0])


def said(items):
    return zlib.crc32(str([(x.uid, x.question, x.answer, x.metadata) for x in items]).encode())


def test_items_depend_on_seed_split_and_index_alone_and_have_not_changed():
    source = procedural.Procedural(3, 50)
    again = procedural.Procedural(3, 5000)
    for index in (49, 0, np.int32(7)):
        assert said([source[index]]) == said([again[index]])
        np.testing.assert_array_equal(pixels(source[index]), pixels(again[index]))
    with pytest.raises(IndexError):
        source[50]
    every = [item for part in procedural.PARTS for item in only(part, 20)]
    assert (said(source), said(every)) == (528449701, 3457843280)


def test_splits_never_share_a_stream():
    """Philox streams are named by their key; all keys of all splits are distinct."""
    splits = procedural.SPLITS.values()
    streams = (procedural.stream(7, x, i) for x in splits for i in (0, 1, 2**56 - 1))
    keys = [x.bit_generator.state["state"]["key"] for x in streams]
    assert len({(int(seed), int(number)) for seed, number in keys}) == 9


@pytest.mark.parametrize("part", procedural.PARTS)
def test_every_part_is_verifiable_varied_and_short(part):
    items, is_text = only(part), part in TEXTS
    for item in items:
        assert verify.verify_item(procedural.target_text(item), item).correct
        assert (item.metadata["family"], item.metadata["level"]) == procedural.PARTS[part]
        assert len(item.question.split()) <= (16 if part == "story_0" else 9)
        assert [(x.size, x.mode) for x in item.images] == [((112, 112), "RGB")] * (not is_text)
    asked = {item.question if is_text else pixels(item).tobytes() for item in items}
    few = part in ("letters_0", "following_0", "minus_0", "times_0")
    assert len(asked) > (10 if few else 30)
    answers = collections.Counter(item.answer for item in items)
    assert len(answers) > 1 and max(answers.values()) <= 0.75 * len(items)  # no constant solves it


@pytest.mark.parametrize("part", procedural.PARTS)
def test_a_wrong_gold_is_plausible_and_rejects_the_right_answer(part):
    answers = {x.answer for x in only(part, 400, seed=2)}
    plausible = 0
    for right, wrong in zip(only(part, 25), only(part, 25, wrong_golds=1.0), strict=True):
        assert wrong.metadata["mislabelled"]
        assert wrong.metadata["right_answer"] == right.answer
        assert verify.verify_item(procedural.target_text(wrong), wrong).correct
        assert not verify.verify_item(procedural.target_text(right), wrong).correct
        assert not verify.verify_item(procedural.target_text(wrong), right).correct
        plausible += wrong.answer in answers
    many = part in ("hidden_0", "plus_3", "minus_3", "times_1", "times_2")
    assert plausible >= (1 if many else 20)  # of many answers few are drawn twice


# ------------------------------------------------------------------------------ read back
def count_colors(item):
    """Counts connected areas of each color."""
    masks = {name: (pixels(item) == color).all(-1) for name, color in canvas.COLORS.items()}
    return {name: ndimage.label(mask)[1] for name, mask in masks.items()}


@pytest.mark.parametrize("part", ["count_0", "count_1", "subtract_0", "subtract_1"])
def test_counts_agree_with_the_pixels(part):
    for item in only(part, 12):
        areas = count_colors(item)
        if part.startswith("subtract"):
            assert areas.pop(item.question.split()[2]) > 0
        assert item.answer == str(sum(areas.values()))


@pytest.mark.parametrize("part", TEXTS)
def test_answers_of_texts_are_what_their_words_say(part):
    """Read back from the question by other means than those that made it."""
    right = {
        "plus": lambda a, b: a + b,
        "minus": lambda a, b: a - b,
        "times": lambda a, b: a * b,
        "story": lambda a, b: a + b,
        "following": lambda a, b, c, d: d + (b - a) if b - a == c - b == d - c else None,
        "numbers": lambda a, b: " ".join(map(str, range(a, b + 1))),
    }
    for item in only(part, 60):
        numbers = [int(x) for x in re.findall(r"\d+", item.question)]
        family = item.metadata["family"]
        if family == "letters":
            numbers, right["letters"] = [], lambda: len(item.question.split('"')[1])  # noqa: B023
        assert item.answer == str(right[family](*numbers)) and not item.answer.startswith("-")
    assert procedural.draw_again(item).answer == item.answer


@pytest.mark.parametrize("part", ["read_0", "spell_0", "spell_1", "spell_2"])
def test_the_answer_is_what_the_digit_in_the_picture_says(monkeypatch, part):
    """Scans of even gray, darker for higher digits, can be read back from the picture."""
    ink_NHW = np.broadcast_to(np.linspace(0.1, 1, 10)[:, None, None], (10, 8, 8))
    monkeypatch.setattr(handwriting, "scans", lambda split: (ink_NHW, np.arange(10)))
    for item in only(part, 20):
        ink = 255 - pixels(item)[..., 0].astype(float)
        digit = round(np.median(ink[ink > 12]) / 25.5) - 1
        letters = ("zottffssen", "enwhoiieii", "reoruvxvgn")[item.metadata["level"]]
        assert item.answer == (str(digit) if part == "read_0" else letters[digit])


def test_validation_has_scans_of_its_own():
    of = {split: handwriting.scans(split)[0] for split in procedural.SPLITS}
    assert len(of["train"]) + len(of["validation"]) == 1797
    seen = {scan.tobytes() for scan in of["train"]}
    assert not any(scan.tobytes() in seen for scan in of["validation"])
    np.testing.assert_array_equal(of["train"], of["warmup"])


# ------------------------------------------------------------------------------ mixture, golds, teacher
def test_the_mixture_is_the_one_asked_for():
    source = procedural.Procedural(0, 1000, mixture={"color_0": 3, "written_0": 1})
    families = collections.Counter(item.metadata["family"] for item in source)
    assert 200 < families["written"] < 300 and set(families) == {"color", "written"}
    assert sum(procedural.expand_mixture({}).values()) == pytest.approx(1)


def test_wrong_golds_are_the_same_whatever_the_size_and_change_nothing_else():
    def wrong(size=1000, share=0.1, seed=0):
        items = procedural.Procedural(seed, size, wrong_golds=share)
        found = [i for i, x in enumerate(items) if x.metadata.get("mislabelled")]
        return found

    assert 70 < len(wrong()) < 130  # 100 +- 3 standard deviations
    assert wrong(400) == [i for i in wrong() if i < 400] != wrong(400, seed=1)
    assert set(wrong()) < set(wrong(share=0.2))
    pairs = zip(
        procedural.Procedural(3, 60), procedural.Procedural(3, 60, wrong_golds=0.3), strict=True
    )
    for a, b in pairs:
        assert (a.uid, a.question, a.kind) == (b.uid, b.question, b.kind)
        np.testing.assert_array_equal(pixels(a), pixels(b))
        more = {"mislabelled", "right_answer"} if b.metadata.get("mislabelled") else set()
        assert set(b.metadata) - set(a.metadata) == more and (more or a.answer == b.answer)


def test_the_teacher_is_wrong_as_often_as_asked_and_within_family_and_level():
    """A stand-in is drawn from the family and level, so it is sometimes right by chance."""
    colors = procedural.Procedural(0, 60, "warmup", {"color_0": 1.0})
    truth = procedural.target_text(colors[0])
    known = {procedural.target_text(item) for item in colors}

    def taught(noise):
        teacher = procedural.Teacher(colors, {"color_0": noise}, 3)
        answers = [teacher(colors[0], i) for i in range(60)]
        assert answers == [teacher(colors[0], i) for i in range(60)] and {*answers} <= known
        return answers.count(truth) / 60

    assert taught(0.0) == 1
    assert taught(1.0) < 0.7 < taught(0.1)
    # A part that is rare in what is taught has stand-ins as well, and one that is not named no mistakes.
    count = procedural.Procedural(0, 1, "warmup", {"count_1": 1.0})[0]
    teacher = procedural.Teacher(colors, {"count_1": 1.0}, 3)
    assert len({teacher(count, i) for i in range(20)}) > 2
    assert teacher(colors[0], 0) == truth
