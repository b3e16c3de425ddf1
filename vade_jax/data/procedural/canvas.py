"""Draws in square pictures of 112 x 112 pixels."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

from PIL import Image, ImageDraw, ImageFont

SIDE = 112  # pixels
PAPER = (255, 255, 255)
INK = (0, 0, 0)
GRAY = (128, 128, 128)
PALE = (210, 210, 210)
COLORS = {
    "red": (225, 30, 30),
    "green": (30, 165, 60),
    "blue": (40, 80, 230),
    "yellow": (245, 205, 0),
    "purple": (150, 50, 190),
    "black": (25, 25, 25),
}
SHAPES = ("circle", "square", "triangle", "cross")


@dataclasses.dataclass(frozen=True)
class Sample:
    """One question about one picture, or about none, made by a family."""

    image: Image.Image | None
    question: str
    answer: str
    kind: str  # a key of `rewards.verify.KINDS`
    metadata: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # used by the verifier
    # The facts of picture and question, from which other texts about them are written.
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def blank(side: int = SIDE) -> tuple[Image.Image, ImageDraw.ImageDraw]:
    """Returns a white picture, and what draws in it; (0, 0) is the upper left corner."""
    image = Image.new("RGB", (side, side), PAPER)
    return image, ImageDraw.Draw(image)


def write(draw: ImageDraw.ImageDraw, x, y, text: str, height: float, color=INK) -> None:
    """Writes `text` centred on (x, y); `height` is the font size in pixels."""
    draw.text((x, y), text, fill=color, font=font(round(height)), anchor="mm")


def shape(draw: ImageDraw.ImageDraw, name: str, x, y, radius: float, color) -> None:
    """Draws one of `SHAPES` around (x, y), each with about the same area."""
    r = radius
    if name == "circle":
        draw.ellipse((x - r, y - r, x + r, y + r), fill=color)
    elif name == "square":
        r *= 0.9
        draw.rectangle((x - r, y - r, x + r, y + r), fill=color)
    elif name == "triangle":
        draw.polygon([(x, y - r), (x + r, y + 0.9 * r), (x - r, y + 0.9 * r)], fill=color)
    else:
        draw.rectangle((x - r, y - r / 3, x + r, y + r / 3), fill=color)
        draw.rectangle((x - r / 3, y - r, x + r / 3, y + r), fill=color)


@functools.cache
def font(pixels: int) -> ImageFont.FreeTypeFont:
    """Returns Pillow's built-in font in this size."""
    loaded = ImageFont.load_default(size=pixels)
    assert isinstance(loaded, ImageFont.FreeTypeFont)  # always, if a size is given
    return loaded
