"""What was taken of each subset and what was rejected, as Markdown, JSON and a line a reject."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from vade_jax.data import recipe

HEAD = ("subset", "rows", "looked at", "rejected", "kept", "train", "validation")


def write(
    directory: pathlib.Path,
    drawn: Sequence[recipe.Drawn],
    parts: Mapping[str, Sequence[Mapping[str, Any]]],
) -> None:
    """Writes report.md, report.json and rejects.jsonl."""
    found = {one.subset.name: summary(one, parts) for one in drawn}
    (directory / "report.json").write_text(json.dumps(found, indent=2) + "\n")
    (directory / "report.md").write_text(table(found) + "\n")
    with (directory / "rejects.jsonl").open("w") as file:
        for one in drawn:
            for reject in one.rejects:
                line = json.dumps(dataclasses.asdict(reject), ensure_ascii=False)
                file.write(line + "\n")


def summary(one: recipe.Drawn, parts: Mapping[str, Sequence]) -> dict[str, Any]:
    """Returns the numbers of a subset.

    Every question of a row that was looked at is kept, rejected, or one of other_turns.
    """
    name = one.subset.name
    of_part = {p: sum(r["subset"] == name for r in rows) for p, rows in parts.items()}
    return {
        "rows": one.num_rows,
        "looked_at": one.num_seen,
        "wanted": one.subset.take,
        "kept": len(one.kept),
        "rejected": one.counts,
        "other_turns": one.other_turns,
        **of_part,
    }


def table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns a Markdown table with a row a subset, a sum, and a list of reasons."""
    rows = [(name, *_numbers(one)) for name, one in found.items()]
    sums = [sum(column) for column in list(zip(*rows, strict=True))[1:]]
    lines = [f"| {' | '.join(HEAD)} |", "|" + "---|" * len(HEAD)]
    for name, *numbers in [*rows, ("all", *sums)]:
        lines.append("| " + " | ".join([name, *(f"{n:,}" for n in numbers)]) + " |")
    lines += ["", "Rejected, each listed in rejects.jsonl:", ""]
    for name, one in found.items():
        reasons = ", ".join(f"{why} {n:,}" for why, n in one["rejected"].items())
        lines.append(f"- {name}: {reasons or 'none'}")
    return "\n".join(lines)


def _numbers(one: Mapping[str, Any]) -> tuple[int, ...]:
    rejected = sum(one["rejected"].values())
    names = ("kept", "train", "validation")
    return (one["rows"], one["looked_at"], rejected, *(one[name] for name in names))
