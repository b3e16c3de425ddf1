"""Questions about real handwriting: scikit-learn's 1,797 scanned digits.

Unlike the drawn families, these have flaws of real data: unreadable digits, and digits with a label that most
readers would reject. A fifth of the scans is held out for validation, so that a policy must read them and
cannot memorise them.

The scans are from Alpaydin and Kaynak, "Optical Recognition of Handwritten Digits" (UCI, 1998); they have
8 x 8 pixels in 17 grays.
"""

import functools
from typing import Any

import numpy as np
from PIL import Image

from vade_jax.data.procedural import canvas

HELD_OUT = 5  # every fifth scan is only for validation
# The largest shift of a digit from its place, in pixels. Within a warm start, a small model that is trained
# from scratch learns to read digits, but not to find them anywhere in the picture.
OUT_OF_PLACE = 2
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@functools.cache
def scans(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns the scans of a split, `[N, 8, 8]` with ink from 0 to 1, and their digits."""
    from sklearn import datasets  # imported here: an optional package, and slow to import

    digits: Any = datasets.load_digits()
    held_out = np.arange(len(digits.target)) % HELD_OUT == 0
    mine = held_out if split == "validation" else ~held_out
    return digits.images[mine] / 16, digits.target[mine]


def _write(rng: np.random.Generator, digit: int, split: str) -> Image.Image:
    """Returns a picture with a scan of this digit, shifted a little."""
    ink_NHW, digit_N = scans(split)
    across, down = rng.integers(-OUT_OF_PLACE, OUT_OF_PLACE, 2, endpoint=True)
    ink_HW = ink_NHW[rng.choice(np.flatnonzero(digit_N == digit))]
    scan = Image.fromarray(np.uint8(255 * (1 - ink_HW))).resize((64, 64), Image.Resampling.BICUBIC)
    picture = Image.new("L", (canvas.SIDE, canvas.SIDE), 255)
    edge = (canvas.SIDE - 64) // 2
    picture.paste(scan, (edge + int(across), edge + int(down)))
    return picture.convert("RGB")


def read(rng: np.random.Generator, level: int, split: str) -> canvas.Sample:
    """Asks for a digit."""
    digit = int(rng.integers(10))
    return canvas.Sample(_write(rng, digit, split), "What number do you read?", str(digit), "int")


def spell(rng: np.random.Generator, level: int, split: str) -> canvas.Sample:
    """Asks for the first, second or third letter of the name of a digit."""
    digit = int(rng.integers(10))
    question = f"The {('first', 'second', 'third')[level]} letter of the digit's name?"
    return canvas.Sample(_write(rng, digit, split), question, NAMES[digit][level], "text")
