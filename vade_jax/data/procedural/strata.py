"""Items whose pass rate is known beforehand: the answer is written, or cannot be seen."""

import numpy as np

from vade_jax.data.procedural import canvas, wordings


def written(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """The answer is written large in the picture: any policy soon solves it."""
    del level
    answer = str(rng.integers(0, 10))
    picture = canvas.Canvas(size)
    color = list(canvas.COLORS.values())[rng.integers(len(canvas.COLORS))]
    x, y = rng.uniform(40, 72, 2)
    picture.text(x, y, answer, 64, color)
    return canvas.Sample(
        picture.finish(),
        "What number is written?",
        answer,
        "int",
        paraphrases=wordings.paraphrases("written"),
        steps=wordings.of_written(int(answer)),
    )


def hidden(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """A box covers the number: no policy can solve it but by one guess in 900."""
    del level
    answer = str(rng.integers(100, 1000))
    picture = canvas.Canvas(size)
    x, y = rng.uniform(44, 68, 2)
    picture.text(x, y, answer, 36)
    picture.box(x - 36, y - 22, x + 36, y + 22, canvas.GRAY)
    return canvas.Sample(
        picture.finish(),
        "What number is hidden?",
        answer,
        "int",
        paraphrases=wordings.paraphrases("hidden"),
    )
