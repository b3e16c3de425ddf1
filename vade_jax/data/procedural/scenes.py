"""Questions about scattered shapes: naming, counting, comparing, subtracting and spelling."""

import functools
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

from vade_jax.data.procedural import canvas

Thing = tuple[str, str]  # (color, shape)
_COLORS = tuple(canvas.COLORS)
PLURAL = {s: "crosses" if s == "cross" else f"{s}s" for s in canvas.SHAPES}


def _draw(
    rng: np.random.Generator, things: Sequence[Thing]
) -> tuple[Image.Image, list[tuple[float, float]]]:
    """Draws things in random places of a jittered grid, without overlap; also returns their centres."""
    image, draw = canvas.blank()
    side = max(2, int(np.ceil(np.sqrt(len(things)))))
    step = canvas.SIDE / side
    places = rng.permutation(side * side)[: len(things)]
    scales = rng.uniform(0.65, 0.95, len(things))
    jitter = rng.uniform(-1, 1, (len(things), 2))
    centres = []
    for (color, shape), place, scale, shift in zip(things, places, scales, jitter, strict=True):
        radius = min(step * 0.42, 20) * scale
        x, y = (np.array([place % side, place // side]) + 0.5) * step
        dx, dy = shift * (step / 2 - radius - 1)
        canvas.shape(draw, shape, x + dx, y + dy, radius, canvas.COLORS[color])
        centres.append((x + dx, y + dy))
    return image, centres


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]


def _things(rng: np.random.Generator, num: int, allowed: Callable[[Thing], bool]) -> list[Thing]:
    """Returns `num` random things for which `allowed` is true."""
    pool = [(c, s) for c in _COLORS for s in canvas.SHAPES if allowed((c, s))]
    return [pool[i] for i in rng.integers(len(pool), size=num)]


def _unique(rng: np.random.Generator, level: int, asked: int) -> canvas.Sample:
    """Asks for the color (`asked` 0) or the shape (1) of a thing; the question names the other of the two.

    No other thing has the color or shape that is named.
    """
    target = (_pick(rng, _COLORS), _pick(rng, canvas.SHAPES))
    named = 1 - asked
    others = _things(rng, (0, 2, 5, 8)[level], lambda t: t[named] != target[named])
    picture, centres = _draw(rng, [target, *others])
    return canvas.Sample(
        picture,
        ("What color is the {1}?", "What shape is the {0} one?")[asked].format(*target),
        target[asked],
        "text",
        facts={"color": target[0], "shape": target[1], "centre": centres[0]},
    )


# The color of the only thing with its shape, or the shape of the only thing with its color, among 1, 3, 6 or
# 9 things.
color = functools.partial(_unique, asked=0)
shape = functools.partial(_unique, asked=1)


def count(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for the number of equal things, or of all things."""
    color, shape = _pick(rng, _COLORS), _pick(rng, canvas.SHAPES)
    num = int(rng.integers(*((1, 4), (1, 7))[level]))
    if level == 0:
        things, what = [(color, shape)] * num, PLURAL[shape]
    else:
        things, what = _things(rng, num, lambda t: True), "shapes"
    picture, centres = _draw(rng, things)
    return canvas.Sample(
        picture,
        f"How many {what} are there?",
        str(num),
        "int",
        facts={"what": what, "heights": [y for _, y in centres]},
    )


def compare(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks whether there are more of one shape than of another, closer at level 1. Half are "yes"."""
    first, second = rng.permutation(canvas.SHAPES)[:2]
    low, high = ((4, 7), (2, 4))[level]
    gap, fewer = int(rng.integers(low, high)), int(rng.integers(0, 4))
    yes = bool(rng.integers(2))
    more, less = (first, second) if yes else (second, first)
    things = _things(rng, fewer + gap, lambda t: t[1] == more)
    things += _things(rng, fewer, lambda t: t[1] == less)
    num = [sum(thing[1] == shape for thing in things) for shape in (first, second)]
    facts = {"first": PLURAL[first], "second": PLURAL[second]}
    return canvas.Sample(
        _draw(rng, things)[0],
        "Are there more {first} than {second}?".format(**facts),
        "yes" if yes else "no",
        "yesno",
        facts={**facts, "num_first": num[0], "num_second": num[1]},
    )


def subtract(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks how many are left when all things of a color are removed."""
    color, _ = _pick(rng, _COLORS), _pick(rng, canvas.SHAPES)
    gone, left = int(rng.integers(1, (3, 5)[level])), int(rng.integers(0, (4, 7)[level]))
    things = _things(rng, gone, lambda t: t[0] == color)
    things += _things(rng, left, lambda t: t[0] != color)
    return canvas.Sample(
        _draw(rng, things)[0],
        f"Remove all {color} shapes. How many are left?",
        str(left),
        "int",
        facts={"color": color, "num_gone": gone, "num_left": left},
    )


# ------------------------------------------------------------------------------ a rule to be found
# These pictures are easy to read, but the rule from picture to answer must be learned, for each color name
# separately. A policy that was never shown right answers finds them by chance, and each reward teaches it
# something. So RL can learn this skill from scratch.
_ORDINALS = ("first", "second", "third", "last")


def letter(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for the first, second, third or last letter of the name of a color."""
    color, shape = _pick(rng, _COLORS), _pick(rng, canvas.SHAPES)
    return canvas.Sample(
        _draw(rng, [(color, shape)])[0],
        f"The {_ORDINALS[level]} letter of the {shape}'s color?",
        color[-1 if level == 3 else level],
        "text",
    )


def initials(rng: np.random.Generator, level: int) -> canvas.Sample:
    """Asks for the first letters of two or three colors, in the order in which the question names shapes."""
    shapes = [canvas.SHAPES[i] for i in rng.permutation(len(canvas.SHAPES))[: level + 2]]
    colors = [_pick(rng, _COLORS) for _ in shapes]
    named = ", ".join(shapes)
    return canvas.Sample(
        _draw(rng, list(zip(colors, shapes, strict=True)))[0],
        f"The colors' first letters: {named}?",
        "".join(color[0] for color in colors),
        "text",
    )
