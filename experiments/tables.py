"""Markdown tables that can be read in a terminal, too."""

from collections.abc import Sequence


def markdown(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    note: str,
    left: Sequence[int] = (0,),
) -> str:
    """Returns a table between its title and a note, with aligned columns, those of `left` to the left."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * (width - 1) + ("-" if i in left else ":") for i, width in enumerate(widths)]
    lines = []
    for cells in (header, rule, *rows):
        padded = [
            cell.ljust(width) if i in left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(padded)} |")
    return "\n".join([title, "", *lines, "", note, ""])
