"""Questions about scattered shapes: naming, counting, comparing, subtracting and spelling.

A family is a function (rng, level, size) -> `canvas.Sample`. The order of its draws from `rng` is part of
the data: with another order, the same seed gives another data set.
"""

import functools
from collections.abc import Callable, Sequence

import numpy as np
from PIL import Image

from vade_jax.data.procedural import canvas

Thing = tuple[str, str]  # (color, shape)
_COLORS = tuple(canvas.COLORS)
PLURAL = {s: "crosses" if s == "cross" else f"{s}s" for s in canvas.SHAPES}


def _draw(
    rng: np.random.Generator, things: Sequence[Thing], size: int
) -> tuple[Image.Image, list[tuple[float, float]]]:
    """Draws things in random places of a jittered grid, without overlap; also returns their centres."""
    picture = canvas.Canvas(size)
    side = max(2, int(np.ceil(np.sqrt(len(things)))))
    step = canvas.UNITS / side
    places = rng.permutation(side * side)[: len(things)]
    scales = rng.uniform(0.65, 0.95, len(things))
    jitter = rng.uniform(-1, 1, (len(things), 2))
    centres = []
    for (color, shape), place, scale, shift in zip(things, places, scales, jitter, strict=True):
        radius = min(step * 0.42, 20) * scale
        x, y = (np.array([place % side, place // side]) + 0.5) * step
        dx, dy = shift * (step / 2 - radius - 1)
        picture.shape(shape, x + dx, y + dy, radius, canvas.COLORS[color])
        centres.append((x + dx, y + dy))
    return picture.finish(), centres


def _pick(rng: np.random.Generator, options: Sequence[str]) -> str:
    return options[int(rng.integers(len(options)))]


def _things(rng: np.random.Generator, num: int, allowed: Callable[[Thing], bool]) -> list[Thing]:
    """Returns `num` random things for which `allowed` is true."""
    pool = [(c, s) for c in _COLORS for s in canvas.SHAPES if allowed((c, s))]
    return [pool[i] for i in rng.integers(len(pool), size=num)]


def _unique(rng: np.random.Generator, level: int, size: int, asked: int) -> canvas.Sample:
    """Asks for the color (`asked` 0) or the shape (1) of a thing; the question names the other of the two.

    No other thing has the color or shape that is named.
    """
    target = (_pick(rng, _COLORS), _pick(rng, canvas.SHAPES))
    named = 1 - asked
    others = _things(rng, (0, 2, 5, 8)[level], lambda t: t[named] != target[named])
    picture, centres = _draw(rng, [target, *others], size)
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


def count(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """Asks for the number of equal things, of all things, of one color, or of one color and shape."""
    color, shape = _pick(rng, _COLORS), _pick(rng, canvas.SHAPES)
    num = int(rng.integers(*((1, 4), (1, 7), (0, 6), (0, 7))[level]))
    if level == 0:
        things, what = [(color, shape)] * num, PLURAL[shape]
    elif level == 1:
        things, what = _things(rng, num, lambda t: True), "shapes"
    elif level == 2:
        things = _things(rng, num, lambda t: t[0] == color)
        things += _things(rng, int(rng.integers(2, 5)), lambda t: t[0] != color)
        what = f"{color} shapes"
    else:  # all distractors share either the color or the shape
        things = [(color, shape)] * num
        num_near = int(rng.integers(3, 8))
        things += _things(rng, num_near, lambda t: (t[0] == color) != (t[1] == shape))
        what = f"{color} {PLURAL[shape]}"
    picture, centres = _draw(rng, things, size)
    return canvas.Sample(
        picture,
        f"How many {what} are there?",
        str(num),
        "int",
        facts={"what": what, "heights": [y for _, y in centres[:num]]},
    )


def compare(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """Asks whether there are more of one shape than of another. Half are "yes".

    The counts are closer at higher levels, and level 2 adds other shapes.
    """
    first, second = rng.permutation(canvas.SHAPES)[:2]
    low, high = ((4, 7), (2, 4), (1, 2))[level]
    gap, fewer = int(rng.integers(low, high)), int(rng.integers(0, 4))
    yes = bool(rng.integers(2))
    more, less = (first, second) if yes else (second, first)
    things = _things(rng, fewer + gap, lambda t: t[1] == more)
    things += _things(rng, fewer, lambda t: t[1] == less)
    if level == 2:
        things += _things(rng, 3, lambda t: t[1] not in (first, second))
    num = [sum(thing[1] == shape for thing in things) for shape in (first, second)]
    facts = {"first": PLURAL[first], "second": PLURAL[second]}
    return canvas.Sample(
        _draw(rng, things, size)[0],
        "Are there more {first} than {second}?".format(**facts),
        "yes" if yes else "no",
        "yesno",
        facts={**facts, "num_first": num[0], "num_second": num[1]},
    )


def subtract(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """Asks how many are left when all things of a color, at level 2 of a color and shape, are removed."""
    color, shape = _pick(rng, _COLORS), _pick(rng, canvas.SHAPES)
    gone, left = rng.integers(1, (3, 5, 5)[level]), rng.integers(0, (4, 7, 9)[level])

    def hit(thing):
        return thing[0] == color and (level < 2 or thing[1] == shape)

    things = _things(rng, int(gone), hit)
    things += _things(rng, int(left), lambda t: not hit(t))
    what = "shapes" if level < 2 else PLURAL[shape]
    return canvas.Sample(
        _draw(rng, things, size)[0],
        f"Remove all {color} {what}. How many are left?",
        str(left),
        "int",
        facts={"color": color, "what": what, "num_gone": int(gone), "num_left": int(left)},
    )


# ------------------------------------------------------------------------------ a rule to be found
# These pictures are easy to read, but the rule from picture to answer must be learned, for each color name
# separately. A policy that was never shown right answers finds them by chance, and each reward teaches it
# something. So this is a skill that RL can build on its own.
_ORDINALS = ("first", "second", "third", "last")


def letter(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """Asks for the first, second, third or last letter of the name of a color."""
    color, shape = _pick(rng, _COLORS), _pick(rng, canvas.SHAPES)
    facts = {"which": _ORDINALS[level], "shape": shape}
    return canvas.Sample(
        _draw(rng, [(color, shape)], size)[0],
        "The {which} letter of the {shape}'s color?".format(**facts),
        color[-1 if level == 3 else level],
        "text",
        facts=facts,
    )


def initials(rng: np.random.Generator, level: int, size: int) -> canvas.Sample:
    """Asks for the first letters of two or three colors, in the order in which the question names shapes."""
    shapes = [canvas.SHAPES[i] for i in rng.permutation(len(canvas.SHAPES))[: level + 2]]
    colors = [_pick(rng, _COLORS) for _ in shapes]
    named = ", ".join(shapes)
    return canvas.Sample(
        _draw(rng, list(zip(colors, shapes, strict=True)), size)[0],
        f"The colors' first letters: {named}?",
        "".join(color[0] for color in colors),
        "text",
        facts={"named": named},
    )
