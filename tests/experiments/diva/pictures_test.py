"""What is done to pictures: by how much it is harder, and its sizes, directions and statistics."""

import numpy as np
import pytest

from experiments.diva import pictures

PICTURE = np.full((112, 112, 3), 200, np.uint8)
RNG = np.random.default_rng(0)
RED_AND_BLUE = np.zeros((40, 60, 3), np.uint8)
RED_AND_BLUE[:, :30, 0], RED_AND_BLUE[:, 30:, 2] = 255, 255


# ------------------------------------------------------------------------------ operators
def test_there_are_one_or_two_changes_and_their_levels_add():
    assert len(set(pictures.OPERATORS)) == len(pictures.OPERATORS)
    # 4 turns, 4 noises, writing; turn and noise 16, writing and either 8
    assert len(pictures.OPERATORS) == 9 + 16 + 8
    for one in pictures.OPERATORS:
        assert 1 <= len(one.kinds) <= 2
        assert one.delta == one.rotate + one.noise + (2 if one.write else 0)
    assert {one.delta for one in pictures.OPERATORS} == set(range(1, 9))


@pytest.mark.parametrize("delta", range(1, 9))
def test_what_is_chosen_is_as_hard_as_asked(delta):
    rng = np.random.default_rng(0)
    found = {pictures.choose(delta, pictures.CHANGES, rng) for _ in range(400)}
    assert found == {one for one in pictures.OPERATORS if one.delta == delta}


def test_the_angle_that_the_question_states_is_the_one_of_the_picture(monkeypatch):
    turned = []
    rotate = lambda picture, degrees: turned.append(degrees) or picture
    monkeypatch.setattr(pictures, "rotate", rotate)
    rng = np.random.default_rng(0)
    for _ in range(50):
        one = pictures.Operator(rotate=3)
        _, question, done = pictures.apply(one, [PICTURE], "Why?", (), rng)
        degrees = turned.pop()
        assert question.startswith("Why?\n") and f" {degrees} degrees" in question
        assert done == f"turned {degrees}" and degrees in pictures.TURNS[3]


# ------------------------------------------------------------------------------ pixels
def test_a_turn_to_the_left_is_counter_clockwise_and_by_the_degrees_given():
    picture = RNG.integers(0, 256, (40, 60, 3), np.uint8)
    np.testing.assert_array_equal(pictures.rotate(picture, 90), np.rot90(picture))
    np.testing.assert_array_equal(pictures.rotate(picture, 180), picture[::-1, ::-1])
    # A dot right of the centre, a quarter of the width away, goes up and stays as far away.
    dot = np.zeros((101, 101, 3), np.uint8)
    dot[49:52, 79:82] = 255
    turned = pictures.rotate(dot, 30)[..., 0].astype(float)
    y, x = np.indices(turned.shape)
    centre = (np.array(turned.shape) - 1) / 2
    dy, dx = (
        (turned * (axis - c)).sum() / turned.sum() for axis, c in zip((y, x), centre, strict=True)
    )
    assert np.degrees(np.arctan2(-dy, dx)) == pytest.approx(30, abs=1)
    assert np.hypot(dx, dy) == pytest.approx(30, abs=1)


def test_the_size_of_each_noise():
    gray, rng = np.full((200, 200, 3), 128, np.uint8), np.random.default_rng(1)
    # In the middle little is cut off: 0.1 of 255 stays 0.1.
    x = pictures.gaussian(gray, 0.1, rng) / 255
    assert x.std() == pytest.approx(0.1, rel=0.02)
    assert x.mean() == pytest.approx(0.5, abs=0.01)
    assert (pictures.speckle(gray, 0.2, rng) / 255).std() == pytest.approx(0.1, rel=0.03)
    assert not pictures.speckle(gray * 0, 0.4, rng).any()
    grains = pictures.salt_pepper(gray, 0.4, rng)
    white, black = (grains == 255).mean(), (grains == 0).mean()
    assert white == pytest.approx(0.1, abs=0.01) and black == pytest.approx(0.1, abs=0.01)
    assert np.all(grains[(grains > 0) & (grains < 255)] == 128)  # nothing binary
    assert np.all(np.ptp(grains, axis=-1) == 0)
    # A sharp step becomes one of the radius 0.02 x 0.5 x 200 = 2 pixels.
    step = np.zeros((200, 200, 3), np.uint8)
    step[:, 100:] = 255
    row = pictures.blur(step, 0.5, rng)[100, :, 0] / 255
    slope = np.diff(row)
    x = np.arange(199) + 0.5
    sd = np.sqrt((slope * (x - 99.5) ** 2).sum() / slope.sum())
    assert sd == pytest.approx(2, rel=0.2)
