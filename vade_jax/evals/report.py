"""The paper's table in Markdown, from results of benchmarks.

The paper's numbers stand beside ours only under the profile that they were made with.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from vade_jax.evals import benchmarks, stats
from vade_jax.evals.results import Result

# Average of the five benchmarks and, where known, their scores: arXiv 2511.18902, Table 1.
PAPER = {
    "7B": {
        "base": {"average": 58.63, "mathverse": 40.36},
        "GRPO": {"average": 61.82},
        "DAPO + GRPO": {"average": 63.67},
        "VADE + GRPO": {"average": 64.75},
        "GSPO": {"average": 62.56},
        "DAPO + GSPO": {"average": 64.37},
        "VADE + GSPO": {"average": 64.57},
    },
    "3B": {
        "base": {"average": 50.65},
        "GRPO": {"average": 55.56},
        "DAPO + GRPO": {"average": 58.51},
        "VADE + GRPO": {"average": 57.32},
        "GSPO": {"average": 56.01},
        "DAPO + GSPO": {"average": 55.10},
        "VADE + GSPO": {"average": 56.38},
    },
}
_SOURCE = "arXiv 2511.18902, Table 1"
_NO_PAPER = f"The rows of the paper ({_SOURCE}) are of another profile and left out."


def table(results: Sequence[Result], *, size: str | None = None, seed: int = 0) -> str:
    """Returns a Markdown table: a row a policy, a column a benchmark, percent with standard errors.

    The average is given, with its 95 % interval, to a policy that has all five benchmarks.

    Args:
      results: of one profile, one for each label and benchmark.
      size: "7B" or "3B" puts the paper's rows above ours, under the profile "paper".
      seed: of the interval's resamples.
    """
    profile, rows = _rows(results)
    shown = [
        name for name in benchmarks.BENCHMARKS if any(name in r for r in rows.values())
    ]
    shown = [*benchmarks.PAPER, *(n for n in shown if n not in benchmarks.PAPER)]
    titles = [_title(name, results) for name in shown]
    lines = [["", *titles, "AVG"], ["---", *["---:"] * (len(shown) + 1)]]
    paper = {} if size is None else _paper(size)
    if profile == "paper":
        lines += [_paper_row(f"{k} {size} (paper)", v, shown) for k, v in paper.items()]
    lines += [_row(label, found, shown, seed) for label, found in rows.items()]
    text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    return f"{text}\n\n{_notes(profile, results, size)}"


def _rows(results: Sequence[Result]) -> tuple[str, dict[str, dict[str, Result]]]:
    """Returns the one profile, and results by label and benchmark."""
    profiles = sorted({result.profile for result in results})
    if not results:
        raise ValueError("there are no results to tabulate")
    if len(profiles) > 1:
        raise ValueError(
            f"profiles {profiles} cannot share a table; make one table for each"
        )
    rows, uids = {}, {}
    for result in results:
        row = rows.setdefault(result.label, {})
        if result.benchmark in row:
            raise ValueError(
                f"{result.label} has {result.benchmark} twice; relabel one"
            )
        row[result.benchmark] = result
        if uids.setdefault(result.benchmark, result.uids) != result.uids:
            raise ValueError(
                f"{result.benchmark} of {result.label} is of other items than the row "
                "above; score both on the same files"
            )
    return profiles[0], rows


def _title(name: str, results: Sequence[Result]) -> str:
    benchmark = benchmarks.BENCHMARKS[name]
    title = benchmark.title if name in benchmarks.PAPER else name
    sizes = {len(r.uids) for r in results if r.benchmark == name}
    differs = sizes and sizes != {benchmark.num_items}
    return f"{title} (n={sizes.pop()} of {benchmark.num_items})" if differs else title


def _paper(size: str) -> Mapping[str, Mapping[str, float]]:
    if size not in PAPER:
        raise ValueError(f"size={size!r} is not in the paper; use one of {list(PAPER)}")
    return PAPER[size]


def _paper_row(
    label: str, found: Mapping[str, float], shown: Sequence[str]
) -> list[str]:
    cells = [f"{found[n]:.2f}" if n in found else "" for n in (*shown, "average")]
    return [label, *cells]


def _row(
    label: str, found: Mapping[str, Result], shown: Sequence[str], seed: int
) -> list[str]:
    cells = [_cell(found[name]) if name in found else "" for name in shown]
    if not all(name in found for name in benchmarks.PAPER):
        return [label, *cells, ""]
    parts = {name: found[name].correct_MG for name in benchmarks.PAPER}
    clusters = {name: found[name].clusters for name in benchmarks.PAPER}
    average = stats.interval(parts, clusters, seed=seed)
    low, high = 100 * average.low, 100 * average.high
    return [label, *cells, f"{100 * average.mean:.2f} [{low:.2f}, {high:.2f}]"]


def _cell(result: Result) -> str:
    error = 100 * stats.standard_error(result.correct_MG, result.clusters)
    known = "" if math.isnan(error) else f" ± {error:.2f}"
    return f"{100 * stats.average(result.correct_MG):.2f}{known}"


def _notes(profile: str, results: Sequence[Result], size: str | None) -> str:
    """Returns what a reader must know of the numbers."""
    samples = {(r.benchmark, np.shape(r.correct_MG)[1]) for r in results}
    counted = ", ".join(f"{name} {num}" for name, num in sorted(samples))
    lines = [f"Profile {profile}. Answers an item: {counted}. ± is one standard error."]
    for result in results:
        if failed := [f"{name} {num}" for name, num in result.counts.items() if num]:
            of = f"of {np.size(result.correct_MG)} answers"
            lines.append(
                f"{result.label}, {result.benchmark}: {', '.join(failed)} {of}."
            )
    if size is not None:
        lines.append(f"Paper: {_SOURCE}." if profile == "paper" else _NO_PAPER)
    return "\n".join(lines)
