"""Rows of a benchmark: a time, its ratio to our own, and the floor it is compared with."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

HEADER = ("", "time", "x ours", "floor", "floor/time", "")
LEFT = (0, 5)  # columns of words


@dataclasses.dataclass(frozen=True)
class Row:
    """One case."""

    name: str
    seconds: float | None  # None: was not run
    ratio: float | None  # seconds / seconds of the table's first row
    floor: float | None  # seconds that the work takes at the machine's measured speed
    note: str = ""
    facts: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Table:
    """Cases that were timed in turns; the first row is ours."""

    title: str
    rows: list[Row]
    floor: str  # what the floor counts

    @classmethod
    def of(
        cls,
        title: str,
        times: Mapping[str, float],
        floors: Mapping[str, float],
        *,
        floor: str,
        notes: Mapping[str, str] | None = None,
        facts: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> "Table":
        """Makes the rows of `times`; its first entry is what the others are divided by."""
        notes, facts, ours = notes or {}, facts or {}, next(iter(times.values()))
        rows = [
            Row(
                name=name,
                seconds=time,
                ratio=time / ours,
                floor=floors[name],
                note=notes.get(name, ""),
                facts=facts.get(name, {}),
            )
            for name, time in times.items()
        ]
        return cls(title, rows, floor)


def text(table: Table) -> str:
    """Returns the table as aligned Markdown."""
    cells = [HEADER, *[_cells(row) for row in table.rows]]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = [_line(row, widths) for row in cells]
    rule = [("-" * (w - 1)) + ("-" if i in LEFT else ":") for i, w in enumerate(widths)]
    body = "\n".join([lines[0], _line(rule, widths), *lines[1:]])
    return f"{table.title}\n\n{body}\n\nfloor: {table.floor}\n"


def plain(
    title: str, header: Sequence[str], rows: Sequence[Sequence[str]], note: str
) -> str:
    """Returns aligned Markdown of words, the first column to the left, with a note below."""
    cells = [tuple(header), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rule = [("-" * (w - 1)) + (":" if i else "-") for i, w in enumerate(widths)]
    lines = [_line(row, widths) for row in (cells[0], tuple(rule), *cells[1:])]
    return f"{title}\n\n" + "\n".join(lines) + f"\n\n{note}\n"


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    cells = enumerate(zip(row, widths, strict=True))
    return f"| {' | '.join(c.ljust(w) if i in LEFT else c.rjust(w) for i, (c, w) in cells)} |"


def _cells(row: Row) -> tuple[str, ...]:
    share = row.floor / row.seconds if row.floor and row.seconds else None
    return (
        row.name,
        duration(row.seconds),
        "-" if row.ratio is None else f"{row.ratio:.2f}",
        duration(row.floor),
        "-" if share is None else f"{share:.0%}",
        row.note,
    )


def duration(seconds: float | None) -> str:
    """Returns seconds with three digits in a fitting unit."""
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
