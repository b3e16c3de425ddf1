"""The report of an evaluation: a table like the paper's, differences to other evaluations, breakdowns."""

import dataclasses
import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from experiments.evals import benchmarks, results, stats
from experiments.evals.results import Result
from experiments.evals.tasks import OWN_RULES, Task
from vade_jax import atomic, tables

Results = Mapping[str, Result]  # by benchmark
# Sections of a task's record that may explain a difference, apart from the policy.
_COMPARABLE = ("sampling", "prompt", "images", "scoring", "data")


# ------------------------------------------------------------------------------ the table
def table(rows: Mapping[str, Results], *, seed: int = 0) -> str:
    """Returns a Markdown table of results by label, of one profile and the same items.

    Cells are percentages with their standard errors. Policies with all five benchmarks also get the average
    with its 95 % interval.
    """
    known = {name: result for each in rows.values() for name, result in each.items()}
    others = [name for name in benchmarks.BENCHMARKS if name in known]
    columns = list(dict.fromkeys([*benchmarks.PAPER, *others]))
    header = ["", *(_title(name, known.get(name)) for name in columns), "AVG"]
    lines = []
    for label, each in rows.items():
        average = _average(each, seed)
        cells = [_cell(each[name]) if name in each else "" for name in columns]
        lines.append([label, *cells, "" if average is None else average.points()])
    text = tables.markdown(header, lines, right=range(1, len(header)))
    return "\n".join([text, "", *_notes(rows), *_protocol(known)])


def _title(name: str, result: Result | None) -> str:
    """Returns the title of a column, with the number of items if it is not the paper's."""
    benchmark = benchmarks.BENCHMARKS[name]
    title = benchmark.title if name in benchmarks.PAPER else name
    if result is None or len(result.uids) == benchmark.num_items:
        return title
    return f"{title} (n={len(result.uids)} of {benchmark.num_items})"


def _cell(result: Result) -> str:
    error = 100 * stats.standard_error(result.correct_MG, result.clusters)
    shown = "" if math.isnan(error) else f" ± {error:.2f}"
    return f"{100 * stats.average(result.correct_MG):.2f}{shown}"


def _average(each: Results, seed: int) -> stats.Estimate | None:
    """Returns the five-benchmark average, None if one is missing."""
    if not set(benchmarks.PAPER) <= set(each):
        return None
    correct = {name: each[name].correct_MG for name in benchmarks.PAPER}
    clusters = {name: each[name].clusters for name in benchmarks.PAPER}
    return stats.interval(correct, clusters, seed=seed)


# ------------------------------------------------------------------------------ notes below it
def scorers(each: Results) -> str:
    """Returns a line for each benchmark that was not scored by its own rules."""
    text = ""
    for name, result in each.items():
        scoring = result.settings.get("scoring", {})
        if model := scoring.get("model"):
            text += f"{name}: judged by {model}.\n"
        elif (by := scoring.get("by", OWN_RULES)) != OWN_RULES:
            text += f"{name}: scored by {by}; no published score.\n"
    return text


def _protocol(known: Results) -> list[str]:
    """Returns the notes for numbers that are compared with published ones."""
    lines = []
    if any(result.settings.get("scoring", {}).get("by") == "judge" for result in known.values()):
        lines.append("The prompts of the judge are worded by vade_jax.")
    if "mathvision" in known:
        lines.append("MathVision is scored by the rules of its authors, without a judge.")
    short = [known[name] for name in ("scienceqa", "chartqa") if name in known]
    if short and short[0].profile == "paper":
        drawn = "greedy, one answer of 16 tokens at most"
        lines.append(f"ScienceQA and ChartQA: {drawn}; the paper's cells are k/2017 and k/2500.")
    return lines


def _notes(rows: Mapping[str, Results]) -> list[str]:
    """Returns the notes about the numbers."""
    every = [(label, result) for label, each in rows.items() for result in each.values()]
    samples = {(result.benchmark, result.correct_MG.shape[1]) for _, result in every}
    counted = ", ".join(f"{name} {num}" for name, num in sorted(samples))
    profile = every[0][1].profile
    lines = [f"Profile {profile}. Answers an item: {counted}. ± is one standard error."]
    for label, result in every:
        if failed := [f"{what} {num}" for what, num in result.counts.items() if num]:
            of = f"of {result.correct_MG.size} answers"
            lines.append(f"{label}, {result.benchmark}: {', '.join(failed)} {of}.")
    return lines


# ------------------------------------------------------------------------------ differences
def check_pair(directory: str, other: Results, tasks: Sequence[Task]) -> None:
    """Raises ValueError unless another evaluation shares a benchmark, its items and profile."""
    pairs = [(task, other[task.name]) for task in tasks if task.name in other]
    label = f"--compare={directory}"
    if not pairs:
        raise ValueError(f"{label} has {', '.join(other)}, none of the benchmarks here")
    for task, result in pairs:
        if result.profile != task.profile:
            raise ValueError(
                f"{label}: its {task.name} is of profile {result.profile!r}, this of {task.profile!r}: "
                "they cannot be compared"
            )
        if result.uids != tuple(item.uid for item in task.items):
            raise ValueError(
                f"{label}: its {task.name} is of other items: score both on the same file"
            )


def difference(mine: Results, other: Results, seed: int) -> dict[str, Any]:
    """Returns mine minus the other's, with paired 95 % intervals, for each benchmark and for the average.

    "settings" names, for each benchmark, the settings that they did not share.
    """
    shared = [name for name in mine if name in other]
    groups = {name: [name] for name in shared}
    if set(benchmarks.PAPER) <= set(shared):
        groups["average"] = list(benchmarks.PAPER)
    gaps: dict[str, Any] = {}
    for label, names in groups.items():
        gap = stats.difference(
            {name: mine[name].correct_MG for name in names},
            {name: other[name].correct_MG for name in names},
            {name: mine[name].clusters for name in names},
            seed=seed,
        )
        gaps[label] = dataclasses.asdict(gap)
    unlike = {name: _unlike(mine[name], other[name]) for name in shared}
    return gaps | {"settings": {name: fields for name, fields in unlike.items() if fields}}


def _unlike(mine: Result, other: Result) -> list[str]:
    """Returns the settings that two results did not share, such as "sampling.temperature"."""
    names = []
    for section in _COMPARABLE:
        a, b = mine.settings.get(section, {}), other.settings.get(section, {})
        names += [f"{section}.{n}" for n in sorted(a.keys() | b.keys()) if a.get(n) != b.get(n)]
    return names


# ------------------------------------------------------------------------------ files
def write(
    workdir: str,
    mine: Results,
    others: Mapping[str, Results],
    *,
    skipped: Sequence[str],
    seed: int,
) -> str:
    """Writes results.json and report.md to `workdir`; returns the report without breakdowns.

    `mine` is compared with `others`, by directory; `skipped` are the paper's benchmarks without a file.
    """
    first, average = next(iter(mine.values())), _average(mine, seed)
    summaries = {name: results.summary(result) for name, result in mine.items()}
    differences = {path: difference(mine, other, seed) for path, other in others.items()}
    content = {
        "label": first.label,
        "profile": first.profile,
        "skipped": list(skipped),
        "average": average and dataclasses.asdict(average),
        "differences": differences,
        "benchmarks": {
            name: result | {"counts": dict(mine[name].counts)} for name, result in summaries.items()
        },
    }
    text = json.dumps(content, indent=1) + "\n"
    atomic.write_text(os.path.join(workdir, "results.json"), text)
    rows = {first.label: mine}
    for path, other in others.items():
        label = next(iter(other.values())).label
        label = f"{label} ({os.path.normpath(path)})" if label in rows else label
        rows[label] = {name: result for name, result in other.items() if name in mine}
    shown = f"{table(rows, seed=seed)}\n{scorers(mine)}"
    for path, gaps in differences.items():
        points = {n: stats.Estimate(**x).points("+") for n, x in gaps.items() if n != "settings"}
        lines = [f"{name}: {text}" for name, text in points.items()]
        for name, fields in gaps["settings"].items():
            lines.append(f"{name} had other settings: {', '.join(fields)}")
        shown += f"\nMinus {path}, in points, with paired 95 % intervals:\n\n"
        shown += "".join(f"- {line}\n" for line in lines)
    if skipped:
        shown += f"\nWithout files, so skipped: {', '.join(skipped)}.\n"
    breakdowns = "".join(_breakdowns(name, result) for name, result in summaries.items())
    atomic.write_text(os.path.join(workdir, "report.md"), f"{shown}\n{breakdowns}")
    return shown


def _breakdowns(name: str, summary: Mapping[str, Any]) -> str:
    text = ""
    for key, values in summary["breakdown"].items():
        rows = [(v, f"{100 * share:.2f}", str(count)) for v, (share, count) in values.items()]
        shown = tables.markdown(["", "accuracy", "items"], rows, right=(1, 2))
        text += f"## {benchmarks.BENCHMARKS[name].title} by {key}\n\n{shown}\n\n"
    return text
