"""Tables of text, in Markdown and for a terminal."""

from collections.abc import Collection, Iterable, Sequence


def markdown(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()
) -> str:
    """Returns a Markdown table; the columns `right` are right-aligned. Bars in cells are escaped."""
    rule = ["---:" if i in right else "---" for i in range(len(header))]
    lines = [[" ".join(cell.split("\n")).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *lines))


def for_terminal(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    note: str,
    left: Collection[int] = (0,),
) -> str:
    """Returns a title, a table padded for a terminal and a note; all columns but `left` are right-aligned."""
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
