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


@pytest.mark.parametrize(
    ("allowed", "delta", "expected"),
    [
        ({"rotate"}, 8, 4), ({"blur"}, 3, 3), ({"write"}, 8, 2), ({"write"}, 1, None),
        ({"write", "gaussian"}, 8, 6), ((), 5, None),
    ],
)  # fmt: skip
def test_what_is_not_allowed_is_not_done(allowed, delta, expected):
    rng = np.random.default_rng(0)
    for _ in range(20):
        one = pictures.choose(delta, allowed, rng)
        assert (one.delta if one else None) == expected


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


@pytest.mark.parametrize("level", pictures.INTENSITIES)
def test_noise_is_of_an_allowed_kind_and_of_its_level(level):
    one, rng = pictures.Operator(noise=level), np.random.default_rng(0)
    seen = set()
    allowed = {"gaussian", "blur", "rotate"}
    for _ in range(40):
        shown, question, done = pictures.apply(one, [PICTURE], "Why?", allowed, rng)
        assert question == "Why?" and shown[0].shape == PICTURE.shape
        seen.add(done)
    intensity = 0.25 + 0.05 * level
    assert seen == {f"gaussian {intensity:.2f}", f"blur {intensity:.2f}"}


def test_a_question_in_the_picture_is_asked_for_and_free_of_noise():
    rng = np.random.default_rng(0)
    one = pictures.Operator(noise=4, write=True)
    (page,), question, done = pictures.apply(one, [PICTURE], "<image>Why?", {"gaussian"}, rng)
    assert question == pictures.WRITTEN and done == "gaussian 0.45 + written"
    band = len(page) - 112
    assert any(
        np.ptp(strip, axis=-1).max() == 0  # gray letters on white, no grains
        for strip in (page[: band - 1], page[1 - band :])
    )
    assert pictures.apply(one, [PICTURE], "x" * 999, {"gaussian"}, rng) is None


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


def test_a_turn_keeps_the_whole_picture_on_the_colour_of_its_edge():
    turned = pictures.rotate(np.full((30, 60, 3), (10, 200, 90), np.uint8), 45)
    # 60 cos 45 + 30 sin 45 = 63.6 on both sides
    assert turned.shape[0] == turned.shape[1] and 63 <= turned.shape[0] <= 66
    assert np.all(turned == (10, 200, 90))
    assert pictures.edge(RED_AND_BLUE) == (128, 0, 128)


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


def test_a_question_goes_on_a_white_band_in_the_proportions_of_the_picture():
    picture = np.full((112, 112, 3), (10, 200, 90), np.uint8)
    for above in (True, False):
        page = pictures.write(picture, "What is the value of bar C?", above)
        assert page.shape[0] == page.shape[1] > 130
        band = len(page) - 112
        strip = page[:band] if above else page[-band:]
        rest = page[band:] if above else page[:-band]
        assert np.all(rest == (10, 200, 90))
        assert np.all(strip[:, 0] == 255) and 0.02 < (strip < 128).mean() < 0.3
    page = pictures.write(np.zeros((100, 300, 3), np.uint8), "Which one?", True)
    assert page.shape[1] / page.shape[0] == pytest.approx(3, abs=0.02)
