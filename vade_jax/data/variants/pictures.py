"""What makes a picture harder to read and leaves what it shows: turning it, noise, and writing on it.

Pictures are uint8 [height, width, 3], RGB in and RGB out.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

_BLUR = 0.02  # radius of intensity 1, in shorter sides
_BANDS = (0.22, 0.3, 0.4, 0.5)  # heights of a band with text, in pictures
SMALLEST = 11  # font size in pixels
_LARGEST = 0.06  # font size in heights of the picture
_LINE = 1.2  # font sizes


# ------------------------------------------------------------------------------ turning
def rotate(picture: np.ndarray, degrees: int) -> np.ndarray:
    """Returns the whole picture, turned to the left (counter-clockwise) by `degrees`.

    It grows to hold its corners; what is new has the mean colour of the edge.
    """
    turned = Image.fromarray(picture).rotate(
        degrees, Image.Resampling.BICUBIC, expand=True, fillcolor=edge(picture)
    )
    return np.array(turned)


def edge(picture: np.ndarray) -> tuple[int, int, int]:
    """Returns the mean colour of the outermost pixels."""
    sides = picture[0], picture[-1], picture[:, 0], picture[:, -1]
    red, green, blue = np.concatenate(sides).mean(0).round().astype(int).tolist()
    return red, green, blue


# ------------------------------------------------------------------------------ noise
def gaussian(
    picture: np.ndarray, intensity: float, rng: np.random.Generator
) -> np.ndarray:
    """Returns x + N(0, intensity), x in 0 .. 1."""
    x = picture / 255
    return _to_uint8(x + intensity * rng.standard_normal(x.shape))


def speckle(
    picture: np.ndarray, intensity: float, rng: np.random.Generator
) -> np.ndarray:
    """Returns x + x N(0, intensity), x in 0 .. 1: black stays black."""
    x = picture / 255
    return _to_uint8(x + x * intensity * rng.standard_normal(x.shape))


def salt_pepper(
    picture: np.ndarray, intensity: float, rng: np.random.Generator
) -> np.ndarray:
    """Makes half `intensity` of the pixels black or white; the others stay as they are."""
    hit, salt = rng.random((2, *picture.shape[:2]))
    grains = np.where(salt < 0.5, 0, 255).astype(np.uint8)[..., None]
    return np.where((hit < intensity / 2)[..., None], grains, picture)


def blur(picture: np.ndarray, intensity: float, rng: np.random.Generator) -> np.ndarray:
    """Returns the picture out of focus, by a radius relative to its shorter side."""
    del rng
    radius = _BLUR * intensity * min(picture.shape[:2])
    return np.array(Image.fromarray(picture).filter(ImageFilter.GaussianBlur(radius)))


Noise = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]
NOISES: dict[str, Noise] = {
    "gaussian": gaussian,
    "salt_pepper": salt_pepper,
    "speckle": speckle,
    "blur": blur,
}


def _to_uint8(x: np.ndarray) -> np.ndarray:
    return (x.clip(0, 1) * 255).round().astype(np.uint8)


# ------------------------------------------------------------------------------ writing
def write(
    picture: np.ndarray, text: str, above: bool, smallest: int = SMALLEST
) -> np.ndarray | None:
    """Returns the picture with `text` on a white band above or below it, in its own proportions.

    The sides grow with the band, so that a resize to as many pixels keeps the proportions too. None
    if the font lacks a letter, or the text, in letters of at least the `smallest` size, needs a band
    of more than half the picture's height.
    """
    text = " ".join(text.split())
    height, width = picture.shape[:2]
    if not (text and drawable(text)):
        return None
    for share in _BANDS:
        band = math.ceil(share * height)
        full = math.ceil(width * (height + band) / height)
        if found := _fit(text, full, band, smallest, round(_LARGEST * height)):
            break
    else:
        return None
    page = Image.new("RGB", (full, height + band), edge(picture))
    top = 0 if above else height
    page.paste((255, 255, 255), (0, top, full, top + band))
    page.paste(Image.fromarray(picture), ((full - width) // 2, band if above else 0))
    font, lines = found
    draw = ImageDraw.Draw(page)
    pitch = _LINE * font.size
    first = top + (band - pitch * (len(lines) - 1)) / 2
    for i, line in enumerate(lines):
        draw.text((full / 2, first + i * pitch), line, "black", font, "mm")
    return np.array(page)


def _fit(text, width, height, smallest, largest):
    """The largest font in which the text fits, and its lines; None if there is none."""
    words = [(word, _width(word)) for word in text.split(" ")]
    for size in range(max(smallest, largest), smallest - 1, -1):
        lines = _wrap(words, width / size - 0.5)
        if lines and _LINE * size * len(lines) <= height:
            return _font(size), lines
    return None


def _wrap(words, width):
    """Lines no wider than `width`, in font sizes; None if a word is."""
    lines, used, space = [], width, _width(" ")
    for word, needed in words:
        if needed > width:
            return None
        if used + space + needed <= width:
            lines[-1] += f" {word}"
            used += space + needed
        else:
            lines.append(word)
            used = needed
    return lines


@functools.lru_cache(4096)
def _width(text: str) -> float:
    """Width in font sizes."""
    return _font(64).getlength(text) / 64


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont:
    return ImageFont.load_default(size=size)


def drawable(text: str) -> bool:
    """Returns whether the font has every character of `text`."""
    return all(map(_has_glyph, set(text) - {" "}))


@functools.lru_cache(4096)
def _has_glyph(character: str) -> bool:
    shape = lambda c: (_font(32).getmask(c).size, bytes(_font(32).getmask(c)))
    return shape(character) != shape("\uffff")
