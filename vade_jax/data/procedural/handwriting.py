"""Questions about real handwriting: pictures composed of scikit-learn's 1,797 scanned digits.

Unlike the drawn families these have what real data have: digits that nobody can read for certain, and
some whose label most readers would not give. A fifth of the scans is held out for validation, so that a
right answer there is read and not remembered.

A family is a function (rng, level, size, split) -> `canvas.Sample`. The order in which it draws from
`rng` is part of the data: another order is another data set for the same seed. The scans are those of
Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits" (UCI, 1998), 8 x 8 pixels in 17 grays.
"""

import functools
import importlib.util
from typing import Any

import numpy as np
from PIL import Image

from vade_jax.data.procedural import canvas

HELD_OUT = 5  # every fifth scan is for validation alone
# Units that a digit may be off its place. A small model from nothing does not learn to find digits
# anywhere in the picture within a warm start, only to read them.
OUT_OF_PLACE = 2
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def is_installed() -> bool:
    """Returns whether the package that the scans come with is there."""
    return importlib.util.find_spec("sklearn") is not None


@functools.cache
def scans(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scans that a split may use, `[N, 8, 8]` with ink from 0 to 1, and their digits."""
    from sklearn import datasets  # an extra, and slow to import

    found: Any = datasets.load_digits()
    held_out = np.arange(len(found.target)) % HELD_OUT == 0
    mine = held_out if split == "validation" else ~held_out
    return found.images[mine] / 16, found.target[mine]


def _write(rng: np.random.Generator, digits, size: int, split: str) -> Image.Image:
    """Returns a picture of scans of these digits side by side, each a little out of place."""
    ink_NHW, digit_N = scans(split)
    num, picture = len(digits), Image.new("L", (canvas.UNITS, canvas.UNITS), 255)
    width = min(64, canvas.UNITS // num)
    shifts = rng.integers(-OUT_OF_PLACE, OUT_OF_PLACE, (num, 2), endpoint=True)
    for i, (digit, (across, down)) in enumerate(zip(digits, shifts, strict=True)):
        ink_HW = ink_NHW[rng.choice(np.flatnonzero(digit_N == digit))]
        scan = Image.fromarray(np.uint8(255 * (1 - ink_HW)))
        scan = scan.resize((width, width), Image.Resampling.BICUBIC)
        column = canvas.UNITS / num
        left = i * column + (column - width) / 2 + across
        top = (canvas.UNITS - width) / 2 + down
        picture.paste(scan, (round(left), round(top)))
    return picture.resize((size, size), Image.Resampling.BICUBIC).convert("RGB")


def read(rng: np.random.Generator, level: int, size: int, split: str) -> canvas.Sample:
    """Reads a number of one, two or three digits."""
    number = str(rng.integers(10**level, 10 ** (level + 1)) if level else rng.integers(10))
    picture = _write(rng, [int(digit) for digit in number], size, split)
    return canvas.Sample(picture, "What number do you read?", number, "int")


def add(rng: np.random.Generator, level: int, size: int, split: str) -> canvas.Sample:
    """Adds two digits up to 4, two of any size, three of any size."""
    digits = rng.integers(0, (5, 10, 10)[level], (2, 2, 3)[level])
    picture = _write(rng, digits, size, split)
    return canvas.Sample(picture, "What is the sum of the digits?", str(digits.sum()), "int")


def largest(rng: np.random.Generator, level: int, size: int, split: str) -> canvas.Sample:
    """Names the largest of two, three or four digits."""
    digits = rng.integers(0, 10, level + 2)
    picture = _write(rng, digits, size, split)
    return canvas.Sample(picture, "Which digit is the largest?", str(digits.max()), "int")


def larger(rng: np.random.Generator, level: int, size: int, split: str) -> canvas.Sample:
    """Asks if the left digit is larger; levels bring the two closer. Half are "yes"."""
    gap = rng.integers(*((5, 9), (2, 5), (1, 2))[level])
    low, yes = rng.integers(0, 10 - gap), bool(rng.integers(2))
    digits = (low + gap, low) if yes else (low, low + gap)
    picture = _write(rng, digits, size, split)
    answer = "yes" if yes else "no"
    return canvas.Sample(picture, "Is the left digit larger?", answer, "yesno")


def spell(rng: np.random.Generator, level: int, size: int, split: str) -> canvas.Sample:
    """Asks for the first, second or third letter of a digit's name."""
    digit = int(rng.integers(10))
    which = ("first", "second", "third")[level]
    question = f"The {which} letter of the digit's name?"
    picture = _write(rng, [digit], size, split)
    return canvas.Sample(picture, question, NAMES[digit][level], "text", facts={"which": which})
