"""Bar charts: read a value, find the tallest or the shortest bar."""

from collections.abc import Sequence

import numpy as np
from PIL import Image

from vade_jax.data.procedural import canvas, wordings

LETTERS = "ABCDE"
_LEFT, _TOP, _BOTTOM, _RIGHT = 16, 12, 96, 110
_HIGHEST = 10


def _height(value: float) -> float:
    """Returns the y of a value on the axis."""
    return _BOTTOM - (_BOTTOM - _TOP) * value / _HIGHEST


def _draw(
    rng: np.random.Generator,
    values: Sequence[float],
    size: int,
    *,
    ticks: Sequence[int],
    labels: bool,
) -> Image.Image:
    """Returns bars named A, B, ... with numbers at the axis, or at the bars with `labels`."""
    picture = canvas.Canvas(size)
    for tick in ticks:
        picture.line((_LEFT, _height(tick)), (_RIGHT, _height(tick)), canvas.PALE)
        if tick % 2 == 0:
            picture.text(8, _height(tick), str(tick), 11)
    step = (_RIGHT - _LEFT) / len(values)
    colors = rng.permutation(list(canvas.COLORS.values()))
    for i, value in enumerate(values):
        x = _LEFT + (i + 0.5) * step
        half, color = step * 0.32, tuple(colors[i].tolist())
        picture.box(x - half, _height(value), x + half, _BOTTOM, color)
        picture.text(x, 104, LETTERS[i], 13)
        if labels:
            picture.text(x, _height(value) - 6, f"{value:g}", 13)
    picture.line((_LEFT, _BOTTOM), (_RIGHT, _BOTTOM))
    picture.line((_LEFT, _TOP), (_LEFT, _BOTTOM))
    return picture.finish()


def value(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """Reads a bar: written above it; from a fine grid; in halves from a coarse grid, within 5 %."""
    num = (3, 4, 4)[level]
    values = rng.integers(1, _HIGHEST, num).astype(float)
    if level == 2:
        values = np.maximum(2, values - 0.5 * rng.integers(0, 2, num))
    chosen = rng.integers(num)
    ticks = ((), range(0, 11), range(0, 11, 2))[level]
    image = _draw(rng, values, size, ticks=ticks, labels=level == 0)
    letter = LETTERS[chosen]
    return canvas.Sample(
        image,
        f"What is the value of bar {letter}?",
        f"{values[chosen]:g}",
        "int" if level < 2 else "float",
        {} if level < 2 else {"tolerance": 0.05},
        paraphrases=wordings.paraphrases("value", letter=letter),
        steps=wordings.of_value(letter, values[chosen], labelled=level == 0),
    )


def extreme(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """Asks for the letter of the tallest or the shortest of 3, 4 or 5 ever more equal bars."""
    num, gap = ((3, 3), (4, 2), (5, 1))[level]
    rest = int(rng.integers(1 + gap, _HIGHEST - gap))  # the bars around the winner
    values = np.clip(rest + rng.integers(-1, 2, num), 1 + gap, _HIGHEST - gap)
    chosen, tallest = rng.integers(num), bool(rng.integers(2))
    values[chosen] = values.max() + gap if tallest else values.min() - gap
    image = _draw(rng, values, size, ticks=(), labels=False)
    which, options = "tallest" if tallest else "shortest", tuple(LETTERS[:num])
    return canvas.Sample(
        image,
        f"Which bar is {which}?",
        LETTERS[chosen],
        "choice",
        {"choices": options},
        paraphrases=wordings.paraphrases("extreme", which=which),
        steps=wordings.of_extreme(options, values, which),
    )
