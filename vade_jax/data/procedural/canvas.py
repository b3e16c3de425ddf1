"""A square drawing surface of 112 x 112 pixels."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
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
    # What the picture shows and the question names, for writing other texts about them.
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Canvas:
    """Draws in pixels of the finished picture; (0, 0) is the upper left corner.

    `supersample=2` draws at twice the size and averages, which smooths slanted lines.
    """

    def __init__(self, supersample: int = 1):
        self._scale = supersample
        self._image = Image.new("RGB", (SIDE * supersample, SIDE * supersample), PAPER)
        self._draw = ImageDraw.Draw(self._image)

    def finish(self) -> Image.Image:
        """Returns the picture in its final size."""
        return self._image.reduce(self._scale)

    def _pixels(self, *points: Sequence[float]) -> list[tuple[float, float]]:
        return [(x * self._scale, y * self._scale) for x, y in points]

    def box(self, left, top, right, bottom, color) -> None:
        """Fills a rectangle."""
        corners = self._pixels((left, top), (right, bottom))
        self._draw.rectangle(corners, fill=color)

    def line(self, start, end, color=INK, width: float = 1) -> None:
        """Draws a straight line."""
        width = max(1, round(width * self._scale))
        self._draw.line(self._pixels(start, end), fill=color, width=width)

    def text(self, x, y, text: str, height: float, color=INK) -> None:
        """Writes `text` centred on (x, y); `height` is the font size."""
        size = round(height * self._scale)
        self._draw.text(self._pixels((x, y))[0], text, fill=color, font=font(size), anchor="mm")

    def shape(self, name: str, x, y, radius: float, color) -> None:
        """Draws one of `SHAPES` around (x, y), each with about the same area."""
        r = radius
        if name == "circle":
            corners = self._pixels((x - r, y - r), (x + r, y + r))
            self._draw.ellipse(corners, fill=color)
        elif name == "square":
            r *= 0.9
            self.box(x - r, y - r, x + r, y + r, color)
        elif name == "triangle":
            corners = [(x, y - r), (x + r, y + 0.9 * r), (x - r, y + 0.9 * r)]
            self._draw.polygon(self._pixels(*corners), fill=color)
        else:
            self.box(x - r, y - r / 3, x + r, y + r / 3, color)
            self.box(x - r / 3, y - r, x + r / 3, y + r, color)


@functools.cache
def font(pixels: int) -> ImageFont.FreeTypeFont:
    """Returns Pillow's built-in font in this size."""
    found = ImageFont.load_default(size=pixels)
    assert isinstance(found, ImageFont.FreeTypeFont)  # always, if a size is given
    return found
