"""Built-in data: determinism, separate splits, right answers, mixture, and what is wrong on purpose."""

import collections
import re

import numpy as np
import pytest
from scipy import ndimage

from vade_jax.data import procedural
from vade_jax.data.procedural import canvas, diagrams, handwriting
from vade_jax.rewards import verify

LEVELS = {f: n for f, (_, n, _) in procedural.FAMILIES.items()}
PARTS = [(f, level) for f, n in LEVELS.items() for level in range(n)]
TEXTS = [f for f, (_, _, stratum) in procedural.FAMILIES.items() if stratum == "text"]


def _only(part, size=40, **kwargs):
    source = procedural.Procedural(1, size, mixture={part: 1}, **kwargs)
    return [source[i] for i in range(size)]


def _pixels(item):
    return np.asarray(item.images[0])


def test_items_depend_on_seed_split_and_index_alone():
    source = procedural.Procedural(3, 50)
    again = procedural.Procedural(3, 5000)
    for index in (49, 0, np.int32(7)):
        a, b = source[index], again[index]
        assert (a.uid, a.question, a.answer) == (b.uid, b.question, b.answer)
        np.testing.assert_array_equal(_pixels(a), _pixels(b))
    assert source[0].uid == "train-3-0"
    with pytest.raises(IndexError):
        source[50]


def test_splits_never_share_a_stream():
    # Philox streams are named by their key; all keys of all splits are distinct.
    names = set()
    for split in procedural.SPLITS:
        for index in (0, 1, 2**56 - 1):
            key = procedural.stream(7, split, index).bit_generator.state["state"]["key"]
            assert key[0] == 7
            names.add(int(key[1]))
    assert len(names) == 9
    first = [procedural.Procedural(0, 9, split)[4] for split in procedural.SPLITS]
    assert len({_pixels(item).tobytes() for item in first}) == 3


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_every_part_is_verifiable_varied_and_short(part):
    items = _only(part)
    for item in items:
        assert verify.verify_item(procedural.target_text(item), item).correct
        assert (item.metadata["family"], item.metadata["level"]) == part
        assert len(item.question.split()) <= (22 if part[0] == "story" else 9)
        for picture in item.images:
            assert picture.size == (112, 112) and picture.mode == "RGB"
        assert len(item.images) == (part[0] not in TEXTS)
    asked = {item.question if part[0] in TEXTS else _pixels(item).tobytes() for item in items}
    few = ("letters", 0), ("following", 0), ("minus", 0), ("times", 0)
    assert len(asked) > (10 if part in few else 30)
    assert len({item.answer for item in items}) > 1
    most = collections.Counter(item.answer for item in items).most_common(1)[0][1]
    assert most <= 0.75 * len(items)  # no constant answer solves it


def test_pictures_of_other_sizes_show_the_same():
    small, large = _only(("table", 0), 3), _only(("table", 0), 3, image_size=224)
    for a, b in zip(small, large, strict=True):
        assert b.images[0].size == (224, 224)
        shrunk = np.asarray(b.images[0].resize((112, 112)), float)
        assert np.abs(shrunk - _pixels(a)).mean() < 12
        assert a.answer == b.answer


def _count_colors(item) -> dict[str, int]:
    """Counts connected areas of each color."""
    masks = {name: (_pixels(item) == color).all(-1) for name, color in canvas.COLORS.items()}
    return {name: ndimage.label(mask)[1] for name, mask in masks.items()}


@pytest.mark.parametrize("level", [0, 1, 2])
def test_counts_agree_with_the_pixels(level):
    for item in _only(("count", level), 12):
        areas = _count_colors(item)
        color = item.question.split()[2]
        expected = areas[color] if level == 2 else sum(areas.values())
        assert item.answer == str(expected)


def test_what_is_left_agrees_with_the_pixels():
    for item in _only(("subtract", 1), 12):
        areas = _count_colors(item)
        gone = areas.pop(item.question.split()[2])
        assert gone > 0 and item.answer == str(sum(areas.values()))


def test_bars_are_as_high_as_their_answers():
    for item in _only(("value", 1), 12):
        letter = item.question[-2]
        x = round(diagrams.LEFT + (diagrams.LETTERS.index(letter) + 0.5) * 94 / 4)
        column = _pixels(item)[diagrams.TOP - 2 : diagrams.BOTTOM, x]
        height = (column == column[-1]).all(-1).sum()
        assert abs(height - 8.4 * float(item.answer)) < 1.5


@pytest.mark.parametrize(("level", "gap"), [(0, 3), (1, 2), (2, 1)])
def test_the_winning_bar_wins_by_the_gap_of_its_level(monkeypatch, level, gap):
    drawn = []
    monkeypatch.setattr(diagrams, "_draw_bars", lambda rng, values, *_, **__: drawn.append(values))
    for seed in range(30):
        sample = diagrams.extreme(np.random.default_rng(seed), level, 112)
        order = np.sort(drawn[-1])
        tallest = "tallest" in sample.question
        lead = order[-1] - order[-2] if tallest else order[1] - order[0]
        best = np.argmax(drawn[-1]) if tallest else np.argmin(drawn[-1])
        assert lead >= gap and order[0] >= 1 and order[-1] <= 10
        assert sample.answer == diagrams.LETTERS[best]


def test_angles_of_a_triangle_add_up():
    rng = np.random.default_rng(0)
    for level in range(4):
        angles = np.array([diagrams._angles(rng, level) for _ in range(50)])
        assert (angles.sum(1) == 180).all() and angles.min() >= 30
        assert not (angles % (30, 10, 5, 1)[level]).any()


def test_half_of_the_comparisons_are_true():
    for level in range(3):
        answers = [item.answer for item in _only(("compare", level), 200)]
        assert 70 < answers.count("yes") < 130


@pytest.mark.parametrize("part", [part for part in PARTS if part[0] in TEXTS], ids=str)
def test_answers_of_texts_are_what_their_words_say(part):
    """Read back from the question by other means than those that made it."""
    for item in _only(part, 60):
        numbers = [int(x) for x in re.findall(r"\d+", item.question)]
        if part[0] == "numbers":
            row = [int(x) for x in item.answer.split()]
            assert row[:: len(row) - 1] == numbers and set(np.diff(row)) == {1}
            continue
        match part[0]:
            case "plus":
                right = sum(numbers)
            case "minus":
                right = numbers[0] - numbers[1]
            case "times":
                right = numbers[0] * numbers[1]
            case "following":
                right = 2 * numbers[3] - numbers[2]
                assert len(set(np.diff(numbers))) == 1 and right >= 0
            case "letters":
                right = len(item.question.split('"')[1])
            case "story":
                right = numbers[0] + numbers[1] - sum(numbers[2:])
        assert item.answer == str(right) and right >= 0
    assert procedural.draw_again(item).answer == item.answer


# ------------------------------------------------------------------------------ handwriting
@pytest.mark.parametrize("level", [0, 1, 2])
def test_the_answer_is_what_the_digits_in_the_picture_say(monkeypatch, level):
    """Scans of even gray, darker for higher digits, can be read back from the picture."""
    ink_NHW = np.broadcast_to(np.linspace(0.1, 1, 10)[:, None, None], (10, 8, 8))
    monkeypatch.setattr(handwriting, "scans", lambda split: (ink_NHW, np.arange(10)))

    def digits_of(item, num):
        columns = np.array_split(255 - _pixels(item)[..., 0].astype(float), num, axis=1)
        return [round(np.median(x[x > 12]) / 25.5) - 1 for x in columns]

    right = {
        "read": (level + 1, lambda *d: int("".join(map(str, d)))),
        "add": ((2, 2, 3)[level], lambda *d: sum(d)),
        "largest": (level + 2, lambda *d: max(d)),
        "larger": (2, lambda a, b: "yes" if a > b else "no"),
        "spell": (1, lambda d: ("zottffssen", "enwhoiieii", "reoruvxvgn")[level][d]),
    }
    for family, (num, answer) in right.items():
        for item in _only((family, level), 20):
            assert item.answer == str(answer(*digits_of(item, num))), family


def test_validation_has_scans_of_its_own():
    of = {split: handwriting.scans(split)[0] for split in procedural.SPLITS}
    assert len(of["train"]) + len(of["validation"]) == 1797
    seen = {scan.tobytes() for scan in of["train"]}
    assert not any(scan.tobytes() in seen for scan in of["validation"])
    np.testing.assert_array_equal(of["train"], of["warmup"])


def test_without_the_package_handwriting_is_one_clear_error(monkeypatch):
    monkeypatch.setattr(handwriting, "is_installed", lambda: False)
    with pytest.raises(ValueError, match="'read' is made of scikit-learn's digits: pip install"):
        procedural.Procedural(0, 8, mixture={"read_0": 1})
    procedural.Procedural(0, 8)  # nothing else needs it


def test_the_mixture_is_the_one_asked_for():
    source = procedural.Procedural(0, 1000, mixture={"color_0": 3, "trivial": 1})
    families = collections.Counter(source[i].metadata["family"] for i in range(1000))
    assert 200 < families["written"] < 300 and set(families) == {"color", "written"}
    default = procedural.expand_mixture({})
    assert sum(default.values()) == pytest.approx(1)
    assert {procedural.FAMILIES[f][2] for f, _ in default} == {"graded", "trivial", "impossible"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"split": "test"}, "split='test'"), ({"size": 0}, "size=0"), ({"seed": -1}, "seed=-1"),
        ({"image_size": 100}, "image_size=100"), ({"mixture": {("colour", 0): 1}}, "no part"),
        ({"mixture": {("color", 4): 1}}, "level below"),
        ({"mixture": {"easy": 1}}, "use a stratum"),
        ({"mixture": {"color_4": 1}}, "level below"),
        ({"mixture": {("color", 0): 0}}, "must be >= 0, not all 0"),
    ],
)  # fmt: skip
def test_impossible_settings_are_one_clear_error(arguments, message):
    with pytest.raises(ValueError, match=message):
        procedural.Procedural(**({"seed": 0, "size": 8} | arguments))


# ------------------------------------------------------------------------------ wrong on purpose
def _items(source):
    return [source[i] for i in range(len(source))]


def _wrong(source):
    return [i for i, x in enumerate(_items(source)) if x.metadata.get("mislabelled")]


@pytest.mark.parametrize("part", PARTS, ids=str)
def test_a_wrong_gold_is_plausible_and_rejects_the_right_answer(part):
    source = procedural.Procedural(1, 25, mixture={part: 1})
    answers = {x.answer for x in _items(procedural.Procedural(2, 400, mixture={part: 1}))}
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
    many = ("hidden", 0), ("read", 2), ("plus", 3), ("minus", 3), ("times", 1), ("times", 2)
    assert plausible >= (1 if part in many else 20)  # of many answers few are drawn twice


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


def test_the_teacher_is_wrong_as_often_as_asked_and_within_family_and_level():
    """A stand-in is drawn from the family and level, so it is sometimes right by chance."""
    source = procedural.Procedural(0, 400, "warmup")
    items = [source[i] for i in range(400)]
    part = lambda item: f"{item.metadata['family']}_{item.metadata['level']}"
    family = part(items[0])
    inside = [item for item in items if part(item) == family]
    known = {procedural.target_text(item) for item in inside}

    def right(noise):
        teacher = procedural.Teacher(source, {family: noise}, 3)
        truth = procedural.target_text(inside[0])
        return np.mean([teacher(inside[0], i) == truth for i in range(60)])

    assert right(0.0) == 1
    assert right(1.0) < 0.7 < right(0.1)
    always = procedural.Teacher(source, {family: 1.0}, 3)
    said = [always(item, i) for i, item in enumerate(items)]
    assert said == [always(item, i) for i, item in enumerate(items)]
    for item, text in zip(items, said, strict=True):
        if part(item) == family:
            assert text in known
        else:
            assert text == procedural.target_text(item)


def test_a_kind_that_is_rare_in_what_is_taught_has_stand_ins_too():
    colors = procedural.Procedural(0, 10, "warmup", {"color_0": 1.0})
    count = procedural.Procedural(0, 1, "warmup", {"count_3": 1.0})[0]
    teacher = procedural.Teacher(colors, {"count_3": 1.0}, 3)
    assert len({teacher(count, i) for i in range(20)}) > 2
