"""The look of the docs' figures. Only this file imports matplotlib."""

import contextlib
import io
import logging
import pathlib
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
from PIL import Image

from vade_jax.types import PathLike

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe-Ito
INK, FAINT = "#333333", "#8a8a8a"
STYLE: dict[Any, Any] = {
    "font.size": 11,
    "axes.titlesize": 11.5,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.grid": True,
    "grid.color": "#e6e6e6",
    "grid.linewidth": 0.7,
    "axes.axisbelow": True,
    "legend.frameon": False,
}
DPI = (160, 110, 80)  # tried in order until a figure has at most MAX_BYTES
MAX_BYTES = 100_000

PRINCIPAL = {"uniform": "#4d4d4d", "vade": "#0072B2"}  # the paper's arms have the same everywhere
OTHERS = ("#44AA99", "#882255")  # of the arms next to them


def colors(arms: Collection[str]) -> dict[str, str]:
    """Returns the color of each arm of a figure."""
    others = iter(COLORS if PRINCIPAL.keys().isdisjoint(arms) else OTHERS)
    return {arm: PRINCIPAL.get(arm) or next(others) for arm in arms}


@contextlib.contextmanager
def panels(
    path: PathLike, count: int, *, size: tuple[float, float], note: str = "", **options: Any
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yields a figure and its axes, side by side; writes the figure as PNG when the block ends.

    `size` is width and height in inches, `note` is small print below the panels, `options` go to
    matplotlib's `subplots`.
    """
    import matplotlib

    matplotlib.use("Agg")  # draws into files and needs no display
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    from matplotlib import pyplot

    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    with pyplot.rc_context(STYLE):
        options |= {"figsize": size, "layout": "constrained", "squeeze": False}
        figure, axes = pyplot.subplots(1, count, **options)
        try:
            yield figure, axes[0]
            if note:
                figure.supxlabel(note, fontsize=9, color=FAINT, x=0.01, ha="left")
            _save(figure, path)
        finally:
            pyplot.close(figure)  # pyplot keeps a figure in memory until it is closed


def _save(figure: Any, path: PathLike) -> None:
    """Writes a PNG of 128 colors, with fewer pixels if it would be large: figures are committed to git."""
    for dpi in DPI:
        drawn, small = io.BytesIO(), io.BytesIO()
        figure.savefig(drawn, format="png", dpi=dpi)
        picture = Image.open(drawn).convert("RGB")
        # Dithering would add bytes and show little.
        picture.quantize(128, dither=Image.Dither.NONE).save(small, "PNG", optimize=True)
        if small.tell() <= MAX_BYTES:
            break
    pathlib.Path(path).write_bytes(small.getvalue())
