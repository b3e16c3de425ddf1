"""A small table of digits: look one up, or add up a column."""

import numpy as np
from PIL import Image

from vade_jax.data.procedural import canvas, wordings

LETTERS = "ABCD"


def lookup(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """Reads a cell of a 2 x 2, 3 x 3 or 4 x 4 table; level 3 adds up a column of three."""
    side = (2, 3, 4, 3)[level]
    values = rng.integers(0, 10, (side, side))
    row, col = rng.integers(side, size=2)
    picture = canvas.Canvas(size)
    step = (canvas.UNITS - 2) / (side + 1)
    height = min(20, 0.7 * step)
    picture.box(0, 0, canvas.UNITS, step, canvas.PALE)
    picture.box(0, 0, step, canvas.UNITS, canvas.PALE)
    for i in range(side):
        middle = (i + 1.5) * step
        picture.text(middle, step / 2, LETTERS[i], height, canvas.COLORS["blue"])
        picture.text(step / 2, middle, str(i + 1), height, canvas.COLORS["red"])
        for j in range(side):
            picture.text((j + 1.5) * step, middle, str(values[i, j]), height)
    for i in range(1, side + 1):
        picture.line((0, i * step), (canvas.UNITS, i * step), canvas.GRAY)
        picture.line((i * step, 0), (i * step, canvas.UNITS), canvas.GRAY)
    ask = _sum if level == 3 else _cell
    return ask(picture.finish(), values, int(row), int(col))


def _cell(image: Image.Image, values: np.ndarray, row: int, col: int) -> canvas.Sample:
    letter = LETTERS[col]
    return canvas.Sample(
        image,
        f"What number is in row {row + 1} column {letter}?",
        str(values[row, col]),
        "int",
        paraphrases=wordings.paraphrases("cell", row=row + 1, letter=letter),
        steps=wordings.of_cell(row + 1, col, letter, values[row]),
    )


def _sum(image: Image.Image, values: np.ndarray, row: int, col: int) -> canvas.Sample:
    del row
    letter = LETTERS[col]
    return canvas.Sample(
        image,
        f"What is the sum of column {letter}?",
        str(values[:, col].sum()),
        "int",
        paraphrases=wordings.paraphrases("sum", letter=letter),
        steps=wordings.of_sum(letter, values[:, col].tolist()),
    )
