"""The look of figures. Only this file imports matplotlib."""

import contextlib
import dataclasses
import io
import logging
import pathlib
from collections.abc import Iterable, Iterator
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
FEW = 4  # lines that a figure can emphasise at once

PRINCIPAL = {  # the paper's arms have fixed colors
    "uniform": "#4d4d4d",
    "dapo": "#E69F00",
    "vade": "#0072B2",
    "vade_dapo": "#C2185B",
}
OTHERS = (  # Paul Tol's muted colors, and a few more
    *("#44AA99", "#882255", "#999933", "#6699CC", "#117733", "#CC6677"),
    *("#AA4499", "#DDAA33", "#332288", "#88CCEE", "#A0522D", "#7F7F7F"),
)
DASHES = ((0, ()), (0, (5, 1.5)), (0, (1.5, 1.2)), (0, (6, 1.5, 1.5, 1.5)))


@dataclasses.dataclass(frozen=True)
class Look:
    """How an arm is drawn in every figure."""

    color: str
    bold: bool
    dashes: Any

    def style(self) -> dict[str, Any]:
        """Returns matplotlib's options for a line of this arm."""
        return {
            "color": self.color,
            "linestyle": self.dashes,
            "linewidth": 2.4 if self.bold else 1.2,
            "alpha": 1.0 if self.bold else 0.85,
            "zorder": 3 if self.bold else 2,
        }


def looks(labels: Iterable[str]) -> dict[str, Look]:
    """Returns the look of every label: of up to `FEW` all are bold, of more the paper's arms.

    If there are more and none is the paper's, the first six are bold.
    """
    labels = list(dict.fromkeys(labels))
    bold = {label: PRINCIPAL[label] for label in labels if label in PRINCIPAL}
    bold = bold or dict(zip(labels, COLORS, strict=False))
    found = {label: Look(color, True, DASHES[0]) for label, color in bold.items()}
    # The dashes shift by one each time the colors are used up, so that no two of the first
    # len(OTHERS) * len(DASHES) look alike.
    for i, label in enumerate(x for x in labels if x not in bold):
        dashes = DASHES[(i + i // len(OTHERS)) % len(DASHES)]
        found[label] = Look(OTHERS[i % len(OTHERS)], len(labels) <= FEW, dashes)
    return {label: found[label] for label in labels}


@contextlib.contextmanager
def panels(
    path: PathLike,
    rows: int = 1,
    columns: int = 1,
    *,
    size: tuple[float, float],
    note: str = "",
    note_size: float = 9,
    **options: Any,
) -> Iterator[tuple[Any, np.ndarray]]:
    """Yields a figure and its [rows, columns] axes; writes the figure as PNG when the block ends.

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
        figure, axes = pyplot.subplots(rows, columns, **options)
        try:
            yield figure, axes
            if note:
                figure.supxlabel(note, fontsize=note_size, color=FAINT, x=0.01, ha="left")
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


def line(**style: Any) -> Any:
    """Returns a line for a legend."""
    from matplotlib import lines

    return lines.Line2D([], [], **style)
