"""The report of an evaluation: the paper's table, differences to other evaluations, breakdowns.

The paper's numbers appear next to ours only if ours were made with the same profile.
"""

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
# The sections of a task's record that tell what a difference may come from, besides the policy.
_COMPARABLE = ("sampling", "prompt", "images", "scoring", "data")
_PAPER = "arXiv 2511.18902"


# ------------------------------------------------------------------------------ the table
def table(
    rows: Mapping[str, Results],
    *,
    size: str = "",
    ablations: bool = False,
    seeds: Mapping[str, int] = {},
    seed: int = 0,
) -> str:
    """Returns a Markdown table, a row for each policy: percentages with their standard errors.

    The average is given, with its 95 % interval, to a policy that has all five benchmarks.

    Args:
        rows: results by label, of one profile and the same items.
        size: "7B" or "3B" puts the paper's rows above ours where ours were made as the paper's.
        ablations: the paper's rows are those of its Tables 2 and 5 instead of Table 1.
        seeds: by label, how many training runs a row pools; if given, the table has a column of them.
        seed: of the interval's resamples.
    """
    known = {name: result for found in rows.values() for name, result in found.items()}
    profile = next(iter(known.values())).profile
    others = [name for name in benchmarks.BENCHMARKS if name in known]
    columns = list(dict.fromkeys([*benchmarks.PAPER, *others]))
    header, lines = ["", *(_title(name, known.get(name)) for name in columns), "AVG"], []
    paper = benchmarks.PAPER_SCORES.get(size, {})
    if ablations:
        paper = benchmarks.PAPER_ABLATIONS if size == "7B" else {}
    why_not = _unlike_the_papers(rows)
    for label, found in ({} if why_not else paper).items():
        cells = [f"{found[n]:.2f}" if n in found else "" for n in (*columns, "average")]
        lines.append([f"{label} {size} (paper)", *cells])
    for label, found in rows.items():
        cells = [_cell(found[name]) if name in found else "" for name in columns]
        average = _average(found, seed)
        cells.append("" if average is None else average.points())
        lines.append([label, *cells])
    if seeds:
        header.append("seeds")
        lines = [[*line, str(seeds.get(line[0], ""))] for line in lines]
    text = tables.markdown(header, lines, right=range(1, len(header)))
    notes = [*_notes(profile, rows, seeds), *_protocol(profile, known)]
    if paper:
        source = f"{_PAPER}, Tables 2 and 5" if ablations else f"{_PAPER}, Table 1"
        judge = benchmarks.PAPER_JUDGE.rpartition("/")[2]
        notes.append(
            f"The rows of the paper ({source}) are left out: {why_not}."
            if why_not
            else f"Paper: {source}, whose judge is {judge}."
        )
    return "\n".join([text, "", *notes])


def _unlike_the_papers(rows: Mapping[str, Results]) -> str:
    """Returns why the paper's numbers cannot stand above these rows, "" if they can."""
    for name, result in ((n, r) for found in rows.values() for n, r in found.items()):
        if result.profile != "paper":
            return f"they are of another profile than {result.profile}"
        benchmark, usual = benchmarks.BENCHMARKS[name], _usual_scorer(name)
        found = result.settings.get("scoring", {}).get("by", usual)
        if found != usual:
            who = "a judge" if benchmark.judge else usual
            return f"{who} scored its {benchmark.title}, here {found}"
    return ""


def _usual_scorer(name: str) -> str:
    """Returns who scores a benchmark by its authors, as `Result.settings` name it."""
    return "judge" if benchmarks.BENCHMARKS[name].judge else OWN_RULES


def _protocol(profile: str, known: Results) -> list[str]:
    """Returns the notes that belong next to a number that is compared with a published one."""
    lines = []
    if any(result.settings.get("scoring", {}).get("by") == "judge" for result in known.values()):
        lines.append("The prompts of the judge are worded by vade_jax.")
    if "mathvision" in known:
        lines.append("MathVision is scored by the rules of its authors, without a judge.")
    short = [known[name] for name in ("scienceqa", "chartqa") if name in known]
    if profile == "paper" and short:
        is_ours = all("others" not in result.settings.get("sampling", {}) for result in short)
        drawn = "greedy, one answer of 16 tokens at most" if is_ours else "how was drawn is unknown"
        lines.append(f"ScienceQA and ChartQA: {drawn}; the paper's cells are k/2017 and k/2500.")
    return lines


def _title(name: str, result: Result | None) -> str:
    """Returns the title of a column, with the number of items if it is not the paper's."""
    benchmark = benchmarks.BENCHMARKS[name]
    title = benchmark.title if name in benchmarks.PAPER else name
    if result is None or len(result.uids) == benchmark.num_items:
        return title
    return f"{title} (n={len(result.uids)} of {benchmark.num_items})"


def _cell(result: Result) -> str:
    error = 100 * stats.standard_error(result.correct_MG, result.clusters)
    known = "" if math.isnan(error) else f" ± {error:.2f}"
    return f"{100 * stats.average(result.correct_MG):.2f}{known}"


def _average(found: Results, seed: int) -> stats.Estimate | None:
    """Returns the five-benchmark average, None if one is missing."""
    if not set(benchmarks.PAPER) <= set(found):
        return None
    correct = {name: found[name].correct_MG for name in benchmarks.PAPER}
    clusters = {name: found[name].clusters for name in benchmarks.PAPER}
    return stats.interval(correct, clusters, seed=seed)


def _notes(profile: str, rows: Mapping[str, Results], seeds: Mapping[str, int]) -> list[str]:
    """Returns the notes about the numbers."""
    samples = {
        (name, result.correct_MG.shape[1] // seeds.get(label, 1))
        for label, found in rows.items()
        for name, result in found.items()
    }
    counted = ", ".join(f"{name} {num}" for name, num in sorted(samples))
    asked = "Answers an item and seed" if seeds else "Answers an item"
    lines = [f"Profile {profile}. {asked}: {counted}. ± is one standard error."]
    if seeds:
        lines.append(
            "± and intervals are over questions: they do not say how much another training run would "
            "differ."
        )
    for label, found in rows.items():
        for name, result in found.items():
            if failed := [f"{what} {num}" for what, num in result.counts.items() if num]:
                of = f"of {result.correct_MG.size} answers"
                lines.append(f"{label}, {name}: {', '.join(failed)} {of}.")
    return lines


# ------------------------------------------------------------------------------ differences
def check_pair(directory: str, other: Results, tasks: Sequence[Task]) -> None:
    """Raises ValueError unless another evaluation shares a benchmark, its items and profile."""
    pairs = [(task, other[task.name]) for task in tasks if task.name in other]
    if not pairs:
        raise ValueError(
            f"--compare={directory} has {', '.join(other)}, none of the benchmarks here"
        )
    for task, result in pairs:
        if result.profile != task.profile:
            raise ValueError(
                f"--compare={directory}: its {task.name} is of profile {result.profile!r}, this "
                f"of {task.profile!r}: they cannot be compared"
            )
        if result.uids != tuple(item.uid for item in task.items):
            raise ValueError(
                f"--compare={directory}: its {task.name} is of other items: score both on the "
                "same file"
            )


def difference(mine: Results, other: Results, seed: int) -> dict[str, Any]:
    """Returns mine minus the other's, with paired 95 % intervals, for each benchmark and for the average.

    "settings" names, for each benchmark, the settings that they did not share.
    """
    shared = [name for name in mine if name in other]
    groups = {name: [name] for name in shared}
    if set(benchmarks.PAPER) <= set(shared):
        groups["average"] = list(benchmarks.PAPER)
    found = {}
    for label, names in groups.items():
        gap = stats.difference(
            {name: mine[name].correct_MG for name in names},
            {name: other[name].correct_MG for name in names},
            {name: mine[name].clusters for name in names},
            seed=seed,
        )
        found[label] = dataclasses.asdict(gap)
    unlike = {name: _unlike(mine[name], other[name]) for name in shared}
    found["settings"] = {name: fields for name, fields in unlike.items() if fields}
    return found


def not_alike(found: Mapping[str, Any]) -> list[str]:
    """Returns a line for each benchmark of a `difference` whose settings were not shared."""
    return [f"{n} was not made alike: {', '.join(f)}" for n, f in found["settings"].items()]


def _unlike(mine: Result, other: Result) -> list[str]:
    """Returns the settings that two results did not share, such as "sampling.temperature"."""
    found = []
    for section in _COMPARABLE:
        a, b = mine.settings.get(section, {}), other.settings.get(section, {})
        names = sorted(a.keys() | b.keys())
        found += [f"{section}.{name}" for name in names if a.get(name) != b.get(name)]
    return found


# ------------------------------------------------------------------------------ files
def write(
    workdir: str,
    mine: Results,
    others: Mapping[str, Results],
    *,
    skipped: Sequence[str],
    size: str,
    seed: int,
) -> str:
    """Writes results.json and report.md to `workdir`; returns all but its breakdowns, to be shown.

    Args:
        workdir: of the evaluation.
        mine: its results.
        others: the results to compare with, by directory.
        skipped: the paper's benchmarks that had no file.
        size: "7B" or "3B" for the paper's rows, or "".
        seed: of resamples.
    """
    first, average = next(iter(mine.values())), _average(mine, seed)
    gaps = {path: difference(mine, other, seed) for path, other in others.items()}
    content = {
        "label": first.label,
        "profile": first.profile,
        "skipped": list(skipped),
        "average": None if average is None else dataclasses.asdict(average),
        "differences": gaps,
        "benchmarks": {
            name: results.summary(result) | {"counts": dict(result.counts)}
            for name, result in mine.items()
        },
    }
    text = json.dumps(content, indent=1) + "\n"
    atomic.write_text(os.path.join(workdir, "results.json"), text)
    rows = {first.label: mine}
    for path, other in others.items():
        label = next(iter(other.values())).label
        label = f"{label} ({os.path.normpath(path)})" if label in rows else label
        rows[label] = {name: result for name, result in other.items() if name in mine}
    shown = f"{table(rows, size=size, seed=seed)}\n{scorers(mine)}"
    shown += "".join(_gaps(path, found) for path, found in gaps.items())
    if skipped:
        shown += f"\nWithout files, so skipped: {', '.join(skipped)}.\n"
    body = f"{shown}\n{_breakdowns(mine)}"
    atomic.write_text(os.path.join(workdir, "report.md"), body)
    return shown


def scorers(mine: Results) -> str:
    """Returns a line for each benchmark that was not scored by its own rules."""
    text = ""
    for name, result in mine.items():
        found = result.settings.get("scoring", {})
        if found.get("model"):
            text += f"{name}: judged by {found['model']}.\n"
        elif (by := found.get("by", _usual_scorer(name))) != OWN_RULES:
            text += f"{name}: scored by {by}; no published score.\n"
    return text


def _gaps(path: str, found: Mapping[str, Any]) -> str:
    """Returns the differences to one other evaluation, in points."""
    text = f"\nMinus {path}, in points, with paired 95 % intervals:\n\n"
    for name, gap in found.items():
        if name != "settings":
            text += f"- {name}: {stats.Estimate(**gap).points('+')}\n"
    return text + "".join(f"- {line}\n" for line in not_alike(found))


def _breakdowns(mine: Results) -> str:
    text = ""
    for name, result in mine.items():
        for key, found in results.summary(result)["breakdown"].items():
            text += f"## {benchmarks.BENCHMARKS[name].title} by {key}\n\n"
            rows = [
                (value, f"{100 * accuracy:.2f}", str(count))
                for value, (accuracy, count) in found.items()
            ]
            text += tables.markdown(["", "accuracy", "items"], rows, right=(1, 2)) + "\n\n"
    return text
