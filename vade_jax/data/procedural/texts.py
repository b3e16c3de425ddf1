"""Questions without a picture: arithmetic, counting letters, short stories, and rows of numbers.

All but the rows of numbers are for pretrained language models. A small one answers some questions always,
others sometimes, and never finds products of two two-digit numbers.
"""

import numpy as np

from vade_jax.data.procedural import canvas

# The smallest number and the largest plus 1, by level
_RANGES = ((1, 10), (3, 20), (11, 100), (101, 1000))
_WORDS = (
    "cat", "sun", "egg", "tree", "ship", "milk", "bread", "tiger", "apple", "river", "garden", "window",
    "orange", "pencil", "morning", "picture", "balloon", "kitchen", "elephant", "mountain", "notebook",
)  # fmt: skip
_NAMES = ("Anna", "Ben", "Clara", "David", "Emma", "Felix", "Grace", "Henry")
_GOODS = ("apples", "books", "coins", "eggs", "marbles", "pens", "stamps", "tickets")


def plus(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for the sum of two numbers of one digit, below 20, of two digits or of three."""
    a, b = rng.integers(*_RANGES[level], 2)
    return _asked(f"What is {a} + {b}?", a + b)


def minus(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for a difference that is not negative, of numbers as in `plus`."""
    b, a = np.sort(rng.integers(*_RANGES[level], 2))
    return _asked(f"What is {a} - {b}?", a - b)


def times(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for a product of one digit and one, one and two, or two and two."""
    a = rng.integers(2, 10) if level < 2 else rng.integers(11, 100)
    b = rng.integers(2, 10) if level < 1 else rng.integers(11, 100)
    return _asked(f"What is {a} * {b}?", a * b)


def following(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for the next number of four in equal steps: up by one, up by less than 10, or down."""
    step = int((1, *rng.integers(2, 10, 2))[level]) * (-1 if level == 2 else 1)
    start = int(rng.integers(1, 30)) + (4 * -step if level == 2 else 0)
    row = ", ".join(str(start + i * step) for i in range(4))
    return _asked(f"What number comes next: {row}?", start + 4 * step)


def letters(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for the number of letters of a word."""
    word = _WORDS[rng.integers(len(_WORDS))]
    return _asked(f'How many letters are in the word "{word}"?', len(word))


def story(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Tells a story of two numbers below 10."""
    name, goods = (x[rng.integers(len(x))] for x in (_NAMES, _GOODS))
    a, b = rng.integers(2, 10, 2)
    text = f"{name} has {a} {goods} and gets {b} more. How many {goods} does {name} have now?"
    return _asked(text, a + b)


def numbers(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for 3, 8, 18 or 38 numbers in order: the longer the answer, the likelier a mistake."""
    start, length = int(rng.integers(1, 60)), (3, 8, 18, 38)[level]
    row = range(start, start + length)
    return canvas.Sample(
        None, f"Write the numbers from {row[0]} to {row[-1]}", " ".join(map(str, row)), "text"
    )


def _asked(question: str, answer: np.integer | int) -> canvas.Sample:
    return canvas.Sample(None, question, str(int(answer)), "int")
