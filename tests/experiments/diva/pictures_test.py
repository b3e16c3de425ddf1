"""What is done to pictures: by how much it is harder, and its sizes, directions and statistics."""

import itertools

import numpy as np
import pytest

from experiments.diva import pictures
from vade_jax.data.procedural import canvas

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


def test_no_angle_belongs_to_two_levels():
    angles = list(itertools.chain(*pictures.TURNS.values()))
    assert len(set(angles)) == len(angles) and 0 not in angles
    assert pictures.TURNS[2] == (45, 135, 225, 315) and 1 in pictures.TURNS[4]


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


def test_several_pictures_are_turned_alike():
    one, rng = pictures.Operator(rotate=1), np.random.default_rng(0)
    shown, question, _ = pictures.apply(one, [PICTURE, PICTURE], "Why?", (), rng)
    np.testing.assert_array_equal(*shown)
    assert "Each picture is turned" in question


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


def test_a_turned_question_has_larger_letters(monkeypatch):
    sizes = []
    write = lambda picture, text, above, smallest: sizes.append(smallest) or picture
    monkeypatch.setattr(pictures, "write", write)
    rng = np.random.default_rng(0)
    for level in (0, 1, 2, 4):
        one = pictures.Operator(rotate=level, write=True)
        pictures.apply(one, [PICTURE], "Why?", (), rng)
    assert sizes == [11, 11, 16, 16]


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


@pytest.mark.parametrize("kind", pictures.NOISES)
def test_noise_leaves_the_size_and_the_order_of_the_colours(kind):
    noisy = pictures.NOISES[kind](RED_AND_BLUE, 0.3, np.random.default_rng(0))
    assert noisy.shape == RED_AND_BLUE.shape and noisy.dtype == np.uint8
    left, right = noisy[:, :28].mean((0, 1)), noisy[:, 32:].mean((0, 1))
    assert left[0] > 150 > 100 > left[2] and right[2] > 150 > 100 > right[0]
    again = pictures.NOISES[kind](RED_AND_BLUE, 0.3, np.random.default_rng(0))
    np.testing.assert_array_equal(noisy, again)
    more = pictures.NOISES[kind](RED_AND_BLUE, 0.45, np.random.default_rng(0))
    change = lambda x: np.abs(x.astype(float) - RED_AND_BLUE).mean()
    assert change(more) > change(noisy) > 0


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


@pytest.mark.parametrize("kind", pictures.NOISES)
@pytest.mark.parametrize("name", canvas.COLORS)
def test_a_colour_is_nearest_to_its_own_name_in_the_strongest_noise(kind, name):
    patch = np.full((12, 12, 3), canvas.COLORS[name], np.uint8)
    names, colors = list(canvas.COLORS), np.array(list(canvas.COLORS.values()))
    for seed in range(20):
        noisy = pictures.NOISES[kind](patch, 0.45, np.random.default_rng(seed))
        mean = noisy.reshape(-1, 3).mean(0)
        assert names[np.linalg.norm(colors - mean, axis=1).argmin()] == name


def _shape(name, radius):
    picture = canvas.Canvas(28)  # a patch of 112 units: the radius in units
    picture.shape(name, 56, 56, radius * 4, (150, 50, 190))
    return np.asarray(picture.finish())


@pytest.mark.parametrize("kind", pictures.NOISES)
def test_the_smallest_shapes_are_told_apart_in_the_strongest_noise(kind):
    """By whoever knows all but the shape: nearest mean of noisy patches, 7.6 pixels of radius."""
    rng, noise = np.random.default_rng(0), pictures.NOISES[kind]
    clean = [_shape(name, 7.6) for name in canvas.SHAPES]
    mean = np.stack([np.mean([noise(x, 0.45, rng) for _ in range(150)], 0) for x in clean])
    right = [
        ((mean - noise(x, 0.45, rng)) ** 2).sum((1, 2, 3)).argmin() == i
        for i, x in enumerate(clean)
        for _ in range(50)
    ]
    assert np.mean(right) >= 0.99


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


def test_long_texts_get_more_lines_and_smaller_letters_or_none():
    picture = np.zeros((300, 300, 3), np.uint8)
    short, long = (
        pictures.write(picture, "How many red squares are there? " * n, True) for n in (1, 8)
    )
    assert len(long) >= len(short)
    assert pictures.write(picture, "How many red squares are there? " * 80, True) is None
    assert pictures.write(picture, "x" * 500, True) is None
    assert pictures.write(picture, " \n ", True) is None


def test_letters_that_the_font_lacks_are_not_written():
    assert all(map(pictures.has_glyph, "What is(3+4)/7,in%&$?"))
    assert not any(map(pictures.has_glyph, "öß図の角度は"))
    assert pictures.write(np.zeros((99, 99, 3), np.uint8), "図", True) is None
