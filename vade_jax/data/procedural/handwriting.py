"""Questions about real handwriting: pictures composed of scikit-learn's 1,797 scanned digits.

Unlike the drawn families, these have flaws of real data: digits that nobody can read with certainty, and
digits with a label that most readers would not give. A fifth of the scans is held out for validation, so
that a policy must read them and cannot remember them.

A family is a function (rng, level, size, split) -> `canvas.Sample`. The order of its draws from `rng` is
part of the data: with another order, the same seed gives another data set. The scans are from Alpaydin and
Kaynak, "Optical Recognition of Handwritten Digits" (UCI, 1998); they have 8 x 8 pixels in 17 grays.
"""

import functools
import importlib.util
from typing import Any

import numpy as np
from PIL import Image

from vade_jax.data.procedural import canvas

HELD_OUT = 5  # every fifth scan is only for validation
# The largest shift of a digit from its place, in units. Within a warm start, a small model that is trained
# from scratch learns to read digits, but not to find them anywhere in the picture.
OUT_OF_PLACE = 2
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def is_installed() -> bool:
    """Returns whether scikit-learn, which contains the scans, is installed."""
    return importlib.util.find_spec("sklearn") is not None


@functools.cache
def scans(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scans of a split, `[N, 8, 8]` with ink from 0 to 1, and their digits."""
    from sklearn import datasets  # imported here: an optional package, and slow to import

    found: Any = datasets.load_digits()
    held_out = np.arange(len(found.target)) % HELD_OUT == 0
    mine = held_out if split == "validation" else ~held_out
    return found.images[mine] / 16, found.target[mine]


def _write(rng: np.random.Generator, digits, size: int, split: str) -> Image.Image:
    """Returns a picture with scans of these digits side by side, each shifted a little."""
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
    """Asks for a number of one, two or three digits."""
    number = str(rng.integers(10**level, 10 ** (level + 1)) if level else rng.integers(10))
    picture = _write(rng, [int(digit) for digit in number], size, split)
    return canvas.Sample(picture, "What number do you read?", number, "int")


def add(rng: np.random.Generator, level: int, size: int, split: str) -> canvas.Sample:
    """Asks for the sum of two digits up to 4, of any two digits, or of any three, by level."""
    digits = rng.integers(0, (5, 10, 10)[level], (2, 2, 3)[level])
    picture = _write(rng, digits, size, split)
    return canvas.Sample(picture, "What is the sum of the digits?", str(digits.sum()), "int")


def largest(rng: np.random.Generator, level: int, size: int, split: str) -> canvas.Sample:
    """Asks for the largest of two, three or four digits."""
    digits = rng.integers(0, 10, level + 2)
    picture = _write(rng, digits, size, split)
    return canvas.Sample(picture, "Which digit is the largest?", str(digits.max()), "int")


def larger(rng: np.random.Generator, level: int, size: int, split: str) -> canvas.Sample:
    """Asks whether the left of two digits is larger; they are closer at higher levels. Half are "yes"."""
    gap = rng.integers(*((5, 9), (2, 5), (1, 2))[level])
    low, yes = rng.integers(0, 10 - gap), bool(rng.integers(2))
    digits = (low + gap, low) if yes else (low, low + gap)
    picture = _write(rng, digits, size, split)
    answer = "yes" if yes else "no"
    return canvas.Sample(picture, "Is the left digit larger?", answer, "yesno")


def spell(rng: np.random.Generator, level: int, size: int, split: str) -> canvas.Sample:
    """Asks for the first, second or third letter of the name of a digit."""
    digit = int(rng.integers(10))
    which = ("first", "second", "third")[level]
    question = f"The {which} letter of the digit's name?"
    picture = _write(rng, [digit], size, split)
    return canvas.Sample(picture, question, NAMES[digit][level], "text", facts={"which": which})
