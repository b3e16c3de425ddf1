"""The third angle of a triangle."""

import numpy as np

from vade_jax.data.procedural import canvas, wordings


def _angles(rng: np.random.Generator, level: int) -> tuple[int, int, int]:
    """Returns three angles of at least 30 degrees: multiples of 30, of 10, of 5, any."""
    step = (30, 10, 5, 1)[level]
    while True:
        first, second = step * rng.integers(1, 120 // step + 1, 2)
        third = 180 - first - second
        if min(first, second, third) >= 30:
            return int(first), int(second), int(third)


def triangle(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """Two angles are written at their corners, the third is x."""
    angles = _angles(rng, level)
    turn = rng.uniform(0, 360)
    # On a circle, an angle is half the arc it sees.
    arcs = turn + 2 * np.cumsum([0, angles[2], angles[0]])
    corners = np.array([canvas.direction(arc) for arc in arcs])
    low, high = corners.min(0), corners.max(0)
    scale = 96 / (high - low).max()
    corners = (corners - (low + high) / 2) * scale + canvas.UNITS / 2
    centre = corners.mean(0)
    picture = canvas.Canvas(size, supersample=2)
    for i in range(3):
        picture.line(corners[i], corners[(i + 1) % 3], width=1.5)
        towards = _bisector(corners, i)
        reach = min(40, 9.5 / np.sin(np.radians(angles[i] / 2)))
        x, y = corners[i] + towards * min(
            reach, 0.95 * np.linalg.norm(centre - corners[i])
        )
        picture.text(x, y, str(angles[i]) if i < 2 else "x", 12)
    return canvas.Sample(
        picture.finish(),
        "What is the angle x?",
        str(angles[2]),
        "int",
        paraphrases=wordings.paraphrases("triangle"),
        steps=wordings.of_triangle(*angles[:2]),
    )


def _bisector(corners: np.ndarray, i: int) -> np.ndarray:
    """Returns the unit vector from corner i into the triangle, halving its angle."""
    sides = [corners[(i + k) % 3] - corners[i] for k in (1, 2)]
    middle = sum(side / np.linalg.norm(side) for side in sides)
    return middle / np.linalg.norm(middle)
