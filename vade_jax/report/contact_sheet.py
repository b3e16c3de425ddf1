"""A sheet of sample items, to look at the data before training on it."""

import pathlib
import textwrap

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from vade_jax.data import images, sources

_WIDTH, _PICTURE, _CAPTION, _MARGIN = 240, 224, 68, 8


def draw(
    source: sources.Source, path: str | pathlib.Path, count: int = 24, columns: int = 6
) -> None:
    """Writes a PNG of `count` items spread evenly over `source`.

    The caption gives question, answer and, where the metadata has them, family and level. An item that
    cannot be read shows the error.
    """
    count = min(count, len(source))
    picks = np.linspace(0, len(source) - 1, count).round().astype(int)
    height = _PICTURE + _CAPTION
    rows = -(-count // columns)
    sheet = Image.new("RGB", (columns * _WIDTH, rows * height), "white")
    for i, index in enumerate(picks):
        tile = _tile(source, int(index))
        sheet.paste(tile, (i % columns * _WIDTH, i // columns * height))
    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    sheet.save(path)


def _tile(source: sources.Source, index: int) -> Image.Image:
    """Returns an item's first picture with its caption."""
    tile = Image.new("RGB", (_WIDTH, _PICTURE + _CAPTION), "white")
    try:
        item = source[index]
        picture = images.to_rgb(item.images[0]) if item.images else None
        where = [f"{k} {item.metadata[k]}" for k in ("family", "level") if k in item.metadata]
        lines = [*textwrap.wrap(item.question, 38)[:2], f"= {item.answer}   ({item.kind})"]
        lines.append(", ".join(where))
    except Exception as error:  # decoders raise OSError, SyntaxError, struct.error, ...
        picture, lines = None, textwrap.wrap(f"row {index}: {error}", 38)[:4]
    if picture is not None:
        side = _PICTURE - _MARGIN
        picture = ImageOps.contain(picture, (side, side), Image.Resampling.NEAREST)
        tile.paste(picture, (_MARGIN, _MARGIN))
    text, font = "\n".join(lines), ImageFont.load_default(size=12)
    where = (_MARGIN, _PICTURE + 4)
    ImageDraw.Draw(tile).multiline_text(where, text, fill="black", font=font, spacing=2)
    return tile
