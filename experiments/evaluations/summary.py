"""What is written at the end: the table, differences to other evaluations, breakdowns."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.evaluations import scores
from experiments.evaluations.plan import Plan
from vade_jax.evals import benchmarks, report, results, stats

Results = Mapping[str, results.Result]  # by benchmark
_COMPARABLE = ("sampling", "prompt", "images", "scoring", "data")


def load(directory: str) -> dict[str, results.Result]:
    """Returns what an evaluation found, by benchmark.

    Raises:
      ValueError: the directory holds no results.
    """
    paths = sorted(pathlib.Path(directory).glob(f"*/{scores.RESULT}"))
    if not paths:
        raise ValueError(
            f"--compare={directory} holds no results (*/{scores.RESULT}): give the --workdir of "
            "another evaluation"
        )
    found = [results.load(path) for path in paths]
    return {result.benchmark: result for result in found}


def check_pair(directory: str, other: Results, plans: Sequence[Plan]) -> None:
    """Raises ValueError unless another evaluation has a benchmark, the same items and profile."""
    pairs = [(plan, other[plan.name]) for plan in plans if plan.name in other]
    if not pairs:
        raise ValueError(
            f"--compare={directory} has {', '.join(other)}, none of the benchmarks here"
        )
    for plan, result in pairs:
        if result.profile != plan.profile:
            raise ValueError(
                f"--compare={directory}: its {plan.name} is of profile {result.profile!r}, this "
                f"of {plan.profile!r}: they cannot be compared"
            )
        if result.uids != tuple(item.uid for item in plan.items):
            raise ValueError(
                f"--compare={directory}: its {plan.name} is of other items: score both on the "
                "same file"
            )


def difference(mine: Results, other: Results, seed: int) -> dict[str, Any]:
    """Returns mine minus the other's, with paired 95 % intervals: each benchmark, the average.

    "settings" names what they did not share.
    """
    shared = [name for name in mine if name in other]
    found = {name: _interval([name], mine, other, seed) for name in shared}
    if set(benchmarks.PAPER) <= set(shared):
        found["average"] = _interval(benchmarks.PAPER, mine, other, seed)
    unlike = {name: list(_unlike(mine[name], other[name])) for name in shared}
    found["settings"] = {name: fields for name, fields in unlike.items() if fields}
    return found


def _interval(names, mine, other, seed) -> dict[str, float]:
    first = {name: mine[name].correct_MG for name in names}
    second = {name: other[name].correct_MG for name in names}
    clusters = {name: mine[name].clusters for name in names}
    return dataclasses.asdict(stats.difference(first, second, clusters, seed=seed))


def _unlike(mine, other):
    for section in _COMPARABLE:
        a, b = mine.settings.get(section, {}), other.settings.get(section, {})
        for field in sorted(a.keys() | b.keys()):
            if a.get(field) != b.get(field):
                yield f"{section}.{field}"


def write(
    workdir: str,
    mine: Results,
    others: Mapping[str, Results],
    *,
    skipped: Sequence[str],
    size: str,
    seed: int,
) -> str:
    """Writes results.json and report.md and returns the part of the report that is shown."""
    first = next(iter(mine.values()))
    gaps = {path: difference(mine, other, seed) for path, other in others.items()}
    content = {
        "label": first.label,
        "profile": first.profile,
        "skipped": list(skipped),
        "average": _average(mine, seed),
        "differences": gaps,
        "benchmarks": {
            name: results.summary(result) | {"counts": dict(result.counts)}
            for name, result in mine.items()
        },
    }
    text = json.dumps(content, indent=1) + "\n"
    pathlib.Path(workdir, "results.json").write_text(text)
    shown = _tables(mine, others, size, seed) + _scoring(mine) + _gaps(gaps)
    if skipped:
        shown += f"\nWithout files, so skipped: {', '.join(skipped)}.\n"
    body = f"{shown}\n{_breakdowns(mine)}"
    pathlib.Path(workdir, "report.md").write_text(body)
    return shown


def _average(mine: Results, seed: int) -> dict[str, float] | None:
    """Returns the five-benchmark average, None if one is missing."""
    if not set(benchmarks.PAPER) <= set(mine):
        return None
    correct = {name: mine[name].correct_MG for name in benchmarks.PAPER}
    clusters = {name: mine[name].clusters for name in benchmarks.PAPER}
    return dataclasses.asdict(stats.interval(correct, clusters, seed=seed))


# ------------------------------------------------------------------------------ Markdown
def _tables(mine: Results, others: Mapping[str, Results], size: str, seed: int) -> str:
    rows, labels = list(mine.values()), {next(iter(mine.values())).label}
    for path, other in others.items():
        name = next(iter(other.values())).label
        name = f"{name} ({os.path.normpath(path)})" if name in labels else name
        labels.add(name)
        shared = [result for key, result in other.items() if key in mine]
        rows += [dataclasses.replace(result, label=name) for result in shared]
    return report.table(rows, size=size or None, seed=seed) + "\n"


def _scoring(mine: Results) -> str:
    """Returns a line for each benchmark that a judge, or its absence, has changed."""
    lines = []
    for name, result in mine.items():
        found = result.settings.get("scoring", {})
        if found.get("model"):
            lines.append(f"{name}: judged by {found['model']}.")
        elif benchmarks.BENCHMARKS[name].needs_judge:
            lines.append(f"{name}: scored by {found.get('by')}; no published score.")
    return "".join(f"{line}\n" for line in lines)


def _gaps(gaps: Mapping[str, Any]) -> str:
    """Returns the differences, in points."""
    text = ""
    for path, found in gaps.items():
        text += f"\nMinus {path}, in points, with paired 95 % intervals:\n\n"
        for name, gap in found.items():
            if name != "settings":
                mean, low, high = (100 * gap[end] for end in ("mean", "low", "high"))
                text += f"- {name}: {mean:+.2f} [{low:+.2f}, {high:+.2f}]\n"
        for name, fields in found["settings"].items():
            text += f"- {name} was not made alike: {', '.join(fields)}\n"
    return text


def _breakdowns(mine: Results) -> str:
    text = ""
    for name, result in mine.items():
        for key, found in results.summary(result)["breakdown"].items():
            text += f"## {benchmarks.BENCHMARKS[name].title} by {key}\n\n"
            text += "| | accuracy | items |\n| --- | ---: | ---: |\n"
            for value, (accuracy, count) in found.items():
                text += f"| {value} | {100 * accuracy:.2f} | {count} |\n"
            text += "\n"
    return text
