"""Changes of a picture that make a problem harder by a known amount without changing its answer.

Turning and noise come in four levels, each level one step of difficulty; writing the question into
the picture is worth two steps. An `Operator` is one change or two together, whose steps add up.
Pictures are uint8 [height, width, 3], RGB in and RGB out.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Collection, Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from vade_jax.data.procedural import canvas

TURNS = {  # level: all angles that no lower level has
    1: (90, 180, 270),
    2: tuple(range(45, 360, 90)),
    3: tuple(a for a in range(30, 360, 30) if a % 90),
    4: tuple(a for a in range(1, 360) if a % 15),
}
INTENSITIES = {1: 0.30, 2: 0.35, 3: 0.40, 4: 0.45}  # of noise, by level
WRITTEN = "Answer the question that is written in the picture."
TURNED = "{} is turned to the left by {} degrees. Turn it back in your mind."
SMALLEST = 11  # font size in pixels
_WRITE = 2  # steps that a question in the picture is harder
_BLUR = 0.02  # radius of intensity 1, in shorter sides
_BANDS = (0.22, 0.3, 0.4, 0.5)  # heights of a band with text, in pictures
_LARGEST = 0.06  # font size in heights of the picture
_LINE = 1.2  # distance of lines in font sizes


@dataclasses.dataclass(frozen=True)
class Operator:
    """One or two changes: the levels of turning and noise (0: not at all), and writing."""

    rotate: int = 0
    noise: int = 0
    write: bool = False

    @property
    def kinds(self) -> frozenset[str]:
        """The names of its changes; any kind of noise is "noise"."""
        return frozenset(x for x in ("rotate", "noise", "write") if getattr(self, x))

    @property
    def delta(self) -> int:
        """How much harder it makes a problem."""
        return self.rotate + self.noise + _WRITE * self.write


OPERATORS = tuple(
    operator
    for levels in itertools.product(range(5), range(5), (False, True))
    if 1 <= len((operator := Operator(*levels)).kinds) <= 2
)


def choose(delta: int, allowed: Collection[str], rng: np.random.Generator) -> Operator | None:
    """Returns a random operator that makes a problem harder by `delta`.

    If the changes `allowed` (of `CHANGES`) cannot reach `delta`, it is one of the hardest below it, or None.
    """
    kinds = {"noise" if name in NOISES else name for name in allowed}
    options = [o for o in OPERATORS if o.kinds <= kinds and o.delta <= delta]
    options = [o for o in options if o.delta == max(x.delta for x in options)]
    return options[rng.integers(len(options))] if options else None


def apply(
    operator: Operator,
    shown: Sequence[np.ndarray],
    question: str,
    allowed: Collection[str],
    rng: np.random.Generator,
) -> tuple[list[np.ndarray], str, str] | None:
    """Returns the changed pictures, their question and the changes; None if the question does not fit."""
    shown, done = list(shown), []
    # The order matters: noise is below the letters, so that they can be read, and the turn is last,
    # so that it turns all of it by the angle that the question states.
    if operator.noise:
        kinds = [kind for kind in NOISES if kind in allowed]
        kind = kinds[rng.integers(len(kinds))]
        intensity = INTENSITIES[operator.noise]
        shown = [NOISES[kind](picture, intensity, rng) for picture in shown]
        done.append(f"{kind} {intensity:.2f}")
    if operator.write:
        # Turns other than quarter turns enlarge the picture, and resizing it shrinks the letters by up to
        # 0.71, so they start larger by as much.
        smallest = math.ceil(SMALLEST * (math.sqrt(2) if operator.rotate > 1 else 1))
        text = question.replace("<image>", " ")
        page = write(shown[0], text, rng.random() < 0.5, smallest)
        if page is None:
            return None
        shown, question = [page], WRITTEN
        done.append("written")
    if operator.rotate:
        degrees = int(rng.choice(TURNS[operator.rotate]))
        shown = [rotate(picture, degrees) for picture in shown]
        what = "The picture" if len(shown) == 1 else "Each picture"
        question = f"{question}\n{TURNED.format(what, degrees)}"
        done.append(f"turned {degrees}")
    return shown, question, " + ".join(done)


def rotate(picture: np.ndarray, degrees: int) -> np.ndarray:
    """Returns the picture turned counter-clockwise, enlarged to fit and filled with its edge's colour."""
    options = {"expand": True, "fillcolor": edge(picture)}
    return np.array(Image.fromarray(picture).rotate(degrees, Image.Resampling.BICUBIC, **options))


def edge(picture: np.ndarray) -> tuple[int, int, int]:
    """Returns the mean colour of the outermost pixels."""
    sides = picture[0], picture[-1], picture[:, 0], picture[:, -1]
    red, green, blue = np.concatenate(sides).mean(0).round().astype(int).tolist()
    return red, green, blue


def gaussian(picture: np.ndarray, intensity: float, rng: np.random.Generator) -> np.ndarray:
    """Returns x + N(0, intensity) for x in 0 .. 1."""
    return _grained(picture, intensity * rng.standard_normal(picture.shape))


def speckle(picture: np.ndarray, intensity: float, rng: np.random.Generator) -> np.ndarray:
    """Returns x + x N(0, intensity) for x in 0 .. 1: black stays black."""
    return _grained(picture, picture / 255 * intensity * rng.standard_normal(picture.shape))


def salt_pepper(picture: np.ndarray, intensity: float, rng: np.random.Generator) -> np.ndarray:
    """Makes the share intensity / 2 of the pixels black or white, each as often."""
    hit, salt = rng.random((2, *picture.shape[:2], 1))
    grains = np.where(salt < 0.5, 0, 255).astype(np.uint8)
    return np.where(hit < intensity / 2, grains, picture)


def blur(picture: np.ndarray, intensity: float, rng: np.random.Generator) -> np.ndarray:
    """Returns the picture out of focus, by a radius relative to its shorter side."""
    del rng
    radius = _BLUR * intensity * min(picture.shape[:2])
    return np.array(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius)))


Noise = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]
NOISES: dict[str, Noise] = {x.__name__: x for x in (gaussian, salt_pepper, speckle, blur)}
CHANGES = ("rotate", "write", *NOISES)  # all that can be done to a picture


def _grained(picture: np.ndarray, noise: np.ndarray) -> np.ndarray:
    return ((picture / 255 + noise).clip(0, 1) * 255).round().astype(np.uint8)


def write(
    picture: np.ndarray, text: str, above: bool, smallest: int = SMALLEST
) -> np.ndarray | None:
    """Returns the picture with `text` on a white band above or below it.

    The sides grow with the band, so the proportions stay. Returns None if the font lacks a letter, or if
    the text in its `smallest` letters (in pixels) needs a band of more than half the picture's height.
    """
    words = text.split()
    height, width = picture.shape[:2]
    if not words or not all(map(has_glyph, set("".join(words)))):
        return None
    for share in _BANDS:
        band = math.ceil(share * height)
        full = math.ceil(width * (height + band) / height)
        if fit := _fit(words, full, band, smallest, round(_LARGEST * height)):
            break
    else:
        return None
    page = Image.new("RGB", (full, height + band), edge(picture))
    top = 0 if above else height
    page.paste((255, 255, 255), (0, top, full, top + band))
    page.paste(Image.fromarray(picture), ((full - width) // 2, band if above else 0))
    font, lines = fit
    draw = ImageDraw.Draw(page)
    pitch = _LINE * font.size
    first = top + (band - pitch * (len(lines) - 1)) / 2
    for i, line in enumerate(lines):
        draw.text((full / 2, first + i * pitch), line, "black", font, "mm")
    return np.array(page)


def _fit(words, width, height, smallest, largest):
    """Returns the largest font in which the words fit and their lines, or None."""
    for size in range(max(smallest, largest), smallest - 1, -1):
        lines = _wrap(words, width / size - 0.5)
        if lines and _LINE * size * len(lines) <= height:
            return canvas.font(size), lines
    return None


def _wrap(words, width):
    """Returns lines no wider than `width`, in font sizes; None if a single word is wider."""
    lines, used = [], width
    for word in words:
        if _width(word) > width:
            return None
        if used + _width(f" {word}") <= width:
            lines[-1] += f" {word}"
            used += _width(f" {word}")
        else:
            lines.append(word)
            used = _width(word)
    return lines


@functools.lru_cache(4096)
def _width(text: str) -> float:  # in font sizes
    return canvas.font(64).getlength(text) / 64


@functools.lru_cache(4096)
def has_glyph(character: str) -> bool:
    """Returns whether the font has a character: it looks different from one that no font has."""
    missing, drawn = (canvas.font(32).getmask(c) for c in ("\uffff", character))
    return (drawn.size, list(drawn)) != (missing.size, list(missing))
