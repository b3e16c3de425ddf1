"""Questions about bar charts, tables, triangles, and numbers that are written or hidden."""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image

from vade_jax.data.procedural import canvas

LETTERS = "ABCDE"
LEFT, TOP, BOTTOM, RIGHT = 16, 12, 96, 110  # the area of the bars, in units
_HIGHEST = 10


# ------------------------------------------------------------------------------ bar charts
def _draw_bars(
    rng: np.random.Generator, values: np.ndarray, *, ticks: Sequence[int] = (), labels: bool = False
) -> Image.Image:
    """Returns a chart with bars A, B, ...; `ticks` are lines, `labels` write each value above its bar."""

    def y_of(value):
        return BOTTOM - (BOTTOM - TOP) * value / _HIGHEST

    image, draw = canvas.blank()
    for tick in ticks:
        draw.line((LEFT, y_of(tick), RIGHT, y_of(tick)), fill=canvas.PALE)
        if tick % 2 == 0:
            canvas.write(draw, 8, y_of(tick), str(tick), 11)
    step = (RIGHT - LEFT) / len(values)
    colors = rng.permutation(list(canvas.COLORS.values()))
    for i, value in enumerate(values):
        x = LEFT + (i + 0.5) * step
        half, color = step * 0.32, tuple(colors[i].tolist())
        draw.rectangle((x - half, y_of(value), x + half, BOTTOM), fill=color)
        canvas.write(draw, x, 104, LETTERS[i], 13)
        if labels:
            canvas.write(draw, x, y_of(value) - 6, f"{value:g}", 13)
    draw.line((LEFT, BOTTOM, RIGHT, BOTTOM), fill=canvas.INK)
    draw.line((LEFT, TOP, LEFT, BOTTOM), fill=canvas.INK)
    return image


def value(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for the value of a bar.

    Levels: the value is written above the bar; it is read from a fine grid; it is a multiple of 0.5, read
    from a coarse grid with a tolerance of 5 %.
    """
    num = (3, 4, 4)[level]
    values = rng.integers(1, _HIGHEST, num).astype(float)
    if level == 2:
        values = np.maximum(2, values - 0.5 * rng.integers(0, 2, num))
    chosen = rng.integers(num)
    ticks = ((), range(0, 11), range(0, 11, 2))[level]
    image = _draw_bars(rng, values, ticks=ticks, labels=level == 0)
    letter = LETTERS[chosen]
    return canvas.Sample(
        image,
        f"What is the value of bar {letter}?",
        f"{values[chosen]:g}",
        "int" if level < 2 else "float",
        {} if level < 2 else {"tolerance": 0.05},
        facts={"letter": letter, "value": values[chosen], "labelled": level == 0},
    )


def extreme(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for the tallest or the shortest of 3, 4 or 5 bars; at higher levels it differs less."""
    num, gap = ((3, 3), (4, 2), (5, 1))[level]
    rest = int(rng.integers(1 + gap, _HIGHEST - gap))  # height of the other bars, +- 1
    values = np.clip(rest + rng.integers(-1, 2, num), 1 + gap, _HIGHEST - gap)
    chosen, tallest = rng.integers(num), bool(rng.integers(2))
    values[chosen] = values.max() + gap if tallest else values.min() - gap
    image = _draw_bars(rng, values)
    which, options = "tallest" if tallest else "shortest", tuple(LETTERS[:num])
    return canvas.Sample(
        image,
        f"Which bar is {which}?",
        LETTERS[chosen],
        "choice",
        {"choices": options},
        facts={"which": which, "letters": options, "values": values},
    )


# ------------------------------------------------------------------------------ tables
def table(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for a cell of a 2 x 2, 3 x 3 or 4 x 4 table."""
    side = (2, 3, 4)[level]
    values = rng.integers(0, 10, (side, side))
    row, col = rng.integers(side, size=2)
    image, draw = canvas.blank()
    step = (canvas.SIDE - 2) / (side + 1)
    height = min(20, 0.7 * step)
    draw.rectangle((0, 0, canvas.SIDE, step), fill=canvas.PALE)
    draw.rectangle((0, 0, step, canvas.SIDE), fill=canvas.PALE)
    for i in range(side):
        middle = (i + 1.5) * step
        canvas.write(draw, middle, step / 2, LETTERS[i], height, canvas.COLORS["blue"])
        canvas.write(draw, step / 2, middle, str(i + 1), height, canvas.COLORS["red"])
        for j in range(side):
            canvas.write(draw, (j + 1.5) * step, middle, str(values[i, j]), height)
    for i in range(1, side + 1):
        draw.line((0, i * step, canvas.SIDE, i * step), fill=canvas.GRAY)
        draw.line((i * step, 0, i * step, canvas.SIDE), fill=canvas.GRAY)
    letter = LETTERS[col]
    facts = {"letter": letter, "row": row + 1, "column": col + 1, "numbers": values[row].tolist()}
    return canvas.Sample(
        image,
        f"What number is in row {row + 1} column {letter}?",
        str(values[row, col]),
        "int",
        facts=facts,
    )


# ------------------------------------------------------------------------------ triangles
def _angles(rng: np.random.Generator, level: int) -> tuple[int, int, int]:
    """Returns three angles of at least 30 degrees; by level multiples of 30, 10, 5 or 1."""
    step = (30, 10, 5, 1)[level]
    while True:
        first, second = step * rng.integers(1, 120 // step + 1, 2)
        third = 180 - first - second
        if min(first, second, third) >= 30:
            return int(first), int(second), int(third)


def triangle(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for the third angle of a triangle, x; the other two are written at their corners."""
    angles = _angles(rng, level)
    turn = rng.uniform(0, 360)
    # The corners are on a circle, so an angle is half of the arc opposite to it.
    arcs = turn + 2 * np.cumsum([0, angles[2], angles[0]])
    corners = np.array([(math.cos(arc), -math.sin(arc)) for arc in map(math.radians, arcs)])
    low, high = corners.min(0), corners.max(0)
    scale = 96 / (high - low).max()
    corners = (corners - (low + high) / 2) * scale + canvas.SIDE / 2
    centre = corners.mean(0)
    image, draw = canvas.blank(2 * canvas.SIDE)  # to be halved, which smooths the lines
    for i in range(3):
        start, end = 2 * corners[i], 2 * corners[(i + 1) % 3]
        draw.line((*start, *end), fill=canvas.INK, width=3)
        # The label is on the line that halves the angle, and further inside if the angle is narrow.
        reach = min(40, 9.5 / np.sin(np.radians(angles[i] / 2)))
        reach = min(reach, 0.95 * np.linalg.norm(centre - corners[i]))
        x, y = 2 * (corners[i] + _bisector(corners, i) * reach)
        canvas.write(draw, x, y, str(angles[i]) if i < 2 else "x", 24)
    facts = {"angles": angles[:2]}
    return canvas.Sample(
        image.reduce(2), "What is the angle x?", str(angles[2]), "int", facts=facts
    )


def _bisector(corners: np.ndarray, i: int) -> np.ndarray:
    """Returns the unit vector from corner i along the line that halves its angle."""
    sides = [corners[(i + k) % 3] - corners[i] for k in (1, 2)]
    middle = sum((side / np.linalg.norm(side) for side in sides), np.zeros(2))
    return middle / np.linalg.norm(middle)


# ------------------------------------------------------------------------------ known pass rates
def written(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for a digit that is written large in the picture: every policy soon solves this."""
    answer = str(rng.integers(0, 10))
    image, draw = canvas.blank()
    color = list(canvas.COLORS.values())[rng.integers(len(canvas.COLORS))]
    x, y = rng.uniform(40, 72, 2)
    canvas.write(draw, x, y, answer, 64, color)
    facts = {"digit": answer}
    return canvas.Sample(image, "What number is written?", answer, "int", facts=facts)


def hidden(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for a number that a box covers: a policy can only guess, and is right once in 900 times."""
    answer = str(rng.integers(100, 1000))
    image, draw = canvas.blank()
    x, y = rng.uniform(44, 68, 2)
    canvas.write(draw, x, y, answer, 36)
    draw.rectangle((x - 36, y - 22, x + 36, y + 22), fill=canvas.GRAY)
    return canvas.Sample(image, "What number is hidden?", answer, "int")
