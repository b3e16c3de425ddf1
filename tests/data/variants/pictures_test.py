"""What is done to pixels: sizes, directions, statistics, and the order of the colours."""

import numpy as np
import pytest

from vade_jax.data.procedural import canvas
from vade_jax.data.variants import pictures

RNG = np.random.default_rng(0)
RED_AND_BLUE = np.zeros((40, 60, 3), np.uint8)
RED_AND_BLUE[:, :30, 0], RED_AND_BLUE[:, 30:, 2] = 255, 255


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
        (turned * (axis - c)).sum() / turned.sum()
        for axis, c in zip((y, x), centre, strict=True)
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
    assert (pictures.speckle(gray, 0.2, rng) / 255).std() == pytest.approx(
        0.1, rel=0.03
    )
    assert not pictures.speckle(gray * 0, 0.4, rng).any()
    grains = pictures.salt_pepper(gray, 0.4, rng)
    white, black = (grains == 255).mean(), (grains == 0).mean()
    assert white == pytest.approx(0.1, abs=0.01) and black == pytest.approx(
        0.1, abs=0.01
    )
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
    mean = np.stack(
        [np.mean([noise(x, 0.45, rng) for _ in range(150)], 0) for x in clean]
    )
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


def test_wide_pictures_stay_as_wide():
    page = pictures.write(np.zeros((100, 300, 3), np.uint8), "Which one?", True)
    assert page.shape[1] / page.shape[0] == pytest.approx(3, abs=0.02)


def test_long_texts_get_more_lines_and_smaller_letters_or_none():
    picture = np.zeros((300, 300, 3), np.uint8)
    short, long = (
        pictures.write(picture, "How many red squares are there? " * n, True)
        for n in (1, 8)
    )
    assert len(long) >= len(short)
    assert (
        pictures.write(picture, "How many red squares are there? " * 80, True) is None
    )
    assert pictures.write(picture, "x" * 500, True) is None
    assert pictures.write(picture, " \n ", True) is None


def test_letters_that_the_font_lacks_are_not_written():
    assert pictures.drawable("What is (3 + 4)/7, in % & $?")
    assert not pictures.drawable("Größe") and not pictures.drawable("図の角度は?")
    assert pictures.write(np.zeros((99, 99, 3), np.uint8), "図", True) is None
