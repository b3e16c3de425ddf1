"""One difference of difficulty for each operator, and what it does."""

import itertools

import numpy as np
import pytest

from vade_jax.data.variants import operators, pictures, texts

PICTURE = np.full((112, 112, 3), 200, np.uint8)


def test_there_are_one_or_two_changes_and_their_levels_add():
    assert len(set(operators.OPERATORS)) == len(operators.OPERATORS)
    # 4 turns, 4 noises, writing; turn and noise 16, writing and either 8
    assert len(operators.OPERATORS) == 9 + 16 + 8
    for one in operators.OPERATORS:
        assert 1 <= len(one.parts) <= 2
        assert one.delta == one.rotate + one.noise + (2 if one.write else 0)
    assert {one.delta for one in operators.OPERATORS} == set(range(1, 9))


def test_no_angle_belongs_to_two_levels():
    angles = list(itertools.chain(*operators.TURNS.values()))
    assert len(set(angles)) == len(angles) and 0 not in angles
    assert operators.TURNS[1] == (90, 180, 270)
    assert operators.TURNS[2] == (45, 135, 225, 315)
    assert operators.TURNS[3] == (30, 60, 120, 150, 210, 240, 300, 330)
    assert {30, 45, 90}.isdisjoint(operators.TURNS[4]) and 1 in operators.TURNS[4]


@pytest.mark.parametrize("delta", range(1, 9))
def test_what_is_chosen_is_as_hard_as_asked(delta):
    rng = np.random.default_rng(0)
    found = {operators.choose(delta, operators.CHANGES, rng) for _ in range(400)}
    assert found == {one for one in operators.OPERATORS if one.delta == delta}


@pytest.mark.parametrize(
    ("allowed", "delta", "expected"),
    [
        ({"rotate"}, 8, 4),
        ({"blur"}, 3, 3),
        ({"write"}, 8, 2),
        ({"write"}, 1, None),
        ({"write", "gaussian"}, 8, 6),
        ((), 5, None),
    ],
)
def test_what_is_not_allowed_is_not_done(allowed, delta, expected):
    rng = np.random.default_rng(0)
    for _ in range(20):
        one = operators.choose(delta, allowed, rng)
        assert (one.delta if one else None) == expected


def test_the_angle_that_the_question_states_is_the_one_of_the_picture(monkeypatch):
    turned = []
    monkeypatch.setattr(
        pictures, "rotate", lambda picture, degrees: turned.append(degrees) or picture
    )
    rng = np.random.default_rng(0)
    for _ in range(50):
        one = operators.Operator(rotate=3)
        _, question, done = operators.apply(one, [PICTURE], "Why?", (), rng)
        degrees = turned.pop()
        assert question.startswith("Why?\n") and f" {degrees} degrees" in question
        assert done == f"turned {degrees}" and degrees in operators.TURNS[3]


def test_several_pictures_are_turned_alike():
    one, rng = operators.Operator(rotate=1), np.random.default_rng(0)
    shown, question, _ = operators.apply(one, [PICTURE, PICTURE], "Why?", (), rng)
    np.testing.assert_array_equal(*shown)
    assert "Each picture is turned" in question


@pytest.mark.parametrize("level", operators.INTENSITIES)
def test_noise_is_of_an_allowed_kind_and_of_its_level(level):
    one, rng = operators.Operator(noise=level), np.random.default_rng(0)
    seen = set()
    for _ in range(40):
        shown, question, done = operators.apply(
            one, [PICTURE], "Why?", {"gaussian", "blur", "rotate"}, rng
        )
        assert question == "Why?" and shown[0].shape == PICTURE.shape
        seen.add(done)
    intensity = 0.25 + 0.05 * level
    assert seen == {f"gaussian {intensity:.2f}", f"blur {intensity:.2f}"}


def test_a_question_in_the_picture_is_asked_for_and_free_of_noise():
    rng = np.random.default_rng(0)
    one = operators.Operator(noise=4, write=True)
    (page,), question, done = operators.apply(
        one, [PICTURE], "<image>Why?", {"gaussian"}, rng
    )
    assert question == texts.WRITTEN and done == "gaussian 0.45 + written"
    band = len(page) - 112
    assert any(
        np.ptp(strip, axis=-1).max() == 0  # gray letters on white, no grains
        for strip in (page[: band - 1], page[1 - band :])
    )
    assert operators.apply(one, [PICTURE], "x" * 999, {"gaussian"}, rng) is None


def test_an_unknown_change_is_an_error():
    with pytest.raises(
        ValueError, match=r"no 'mirror', choose from rotate, write, gau"
    ):
        operators.check(("rotate", "mirror"))


def test_a_turned_question_has_larger_letters(monkeypatch):
    sizes = []
    write = lambda picture, text, above, smallest: sizes.append(smallest) or picture
    monkeypatch.setattr(pictures, "write", write)
    rng = np.random.default_rng(0)
    for level in (0, 1, 2, 4):
        one = operators.Operator(rotate=level, write=True)
        operators.apply(one, [PICTURE], "Why?", (), rng)
    assert sizes == [11, 11, 16, 16]
