"""Arms side by side over seeds, and against a baseline of the same seeds: Markdown and JSON."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vade_jax.report import intervals, outcome
from vade_jax.report.intervals import Mean
from vade_jax.report.outcome import LATE, Outcome

PathLike = str | os.PathLike[str]
Groups = Mapping[str, Mapping[str, Sequence[PathLike]]]

# In the order of the table: (name, heading, format, unit).
COLUMNS = (
    ("late", f"mean of the last {LATE} validations", "{:.3f}"),
    ("last", "last validation", "{:.3f}"),
    ("effective_ratio", "effective ratio", "{:.2f}"),
    ("rollouts", "rollouts", "{:,.0f}"),
    ("hopeless", "share on hopeless prompts", "{:.3f}"),
    ("minutes", "minutes", "{:.1f}"),
)
DIFFERENCE = "late"  # what is held against the baseline, seed by seed
NOTES = (
    "Mean ± half of the 95 % interval over seeds (Student's t). Validation accuracy is the mean over "
    "held-out questions and the answers to each (`eval.num_samples`, by default 4).",
    f"Difference to {{baseline}}: of the mean of the last {LATE} validations, over pairs of runs with "
    "the same seed. An interval without 0 is a difference at this number of seeds.",
    "Effective ratio: the share of all groups rolled out whose rewards differ, mean over steps.",
    "Rollouts to {baseline}'s best: spent when a run first validates as high as the best of "
    "{baseline} with the same seed; the mean of those that do, and how many do.",
    "Hopeless: the picture does not show the answer, or the gold is wrong.",
    "Minutes: the run's steps, validations included; of runs beside others on shared cores.",
)


@dataclasses.dataclass(frozen=True)
class Row:
    """One arm under one loss and data."""

    seeds: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]  # one a seed; by the names of COLUMNS
    means: Mapping[str, Mean]
    reach: tuple[float, ...]  # rollouts to the baseline's best; NaN: not reached
    reach_mean: Mean
    differences: tuple[float, ...]  # to the baseline, one a shared seed
    difference: Mean


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All arms, by data/loss."""

    baseline: str
    groups: Mapping[str, Mapping[str, Row]]


def compare(groups: Groups, *, baseline: str = "vanilla") -> Comparison:
    """Returns the arms of each group in numbers.

    Args:
        groups: run directories by data/loss, then by arm; a run's config.json names its seed.
        baseline: the arm that others are held against where a group has it.

    Raises:
        ValueError: an arm has two runs of one seed.
    """
    return Comparison(
        baseline=baseline,
        groups={name: _group(arms, baseline) for name, arms in groups.items()},
    )


def markdown(compared: Comparison) -> str:
    """Returns a table for each group, and what its columns mean."""
    base = compared.baseline
    head = ["arm", "seeds", COLUMNS[0][1], f"difference to {base}"]
    head += [heading for _, heading, _ in COLUMNS[1:]]
    head.insert(7, f"rollouts to {base}'s best")
    parts = []
    for name, rows in compared.groups.items():
        lines = [head, ["---"] * len(head)]
        lines += [_line(arm, row, arm == base) for arm, row in rows.items()]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        parts.append(f"## {name}\n\n{table}\n")
    notes = "\n".join(f"- {note.format(baseline=base)}" for note in NOTES)
    return "\n".join([*parts, notes])


def as_json(compared: Comparison) -> dict:
    """Returns every number, also those of single seeds; null: not measured or not reached."""
    return _plain(dataclasses.asdict(compared))


def write(compared: Comparison, directory: PathLike) -> None:
    """Writes table.md and table.json."""
    folder = pathlib.Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "table.md").write_text(markdown(compared) + "\n")
    (folder / "table.json").write_text(json.dumps(as_json(compared), indent=1) + "\n")


# ------------------------------------------------------------------------------ rows
def _group(arms, baseline):
    found = {arm: _by_seed(arm, dirs) for arm, dirs in arms.items()}
    against = found.get(baseline, {})
    return {arm: _row(runs, against) for arm, runs in found.items()}


def _by_seed(arm, directories) -> dict[int, Outcome]:
    runs = {}
    for run in map(outcome.read, directories):
        if run.seed in runs:
            raise ValueError(
                f"{arm}: {run.directory} and {runs[run.seed].directory} both have seed "
                f"{run.seed}: give one of them"
            )
        runs[run.seed] = run
    return dict(sorted(runs.items()))


def _row(runs: Mapping[int, Outcome], against: Mapping[int, Outcome]) -> Row:
    of: dict[str, Callable[[Outcome], float]] = {
        name: lambda run, name=name: getattr(run, name) for name, _, _ in COLUMNS
    }
    of["minutes"] = lambda run: run.seconds / 60
    values = {
        name: tuple(get(run) for run in runs.values()) for name, get in of.items()
    }
    shared = [seed for seed in runs if seed in against]
    get = of[DIFFERENCE]
    differences = tuple(get(runs[s]) - get(against[s]) for s in shared)
    reach = tuple(runs[s].rollouts_to_reach(against[s].best) for s in shared)
    return Row(
        seeds=tuple(runs),
        values=values,
        means={name: intervals.mean(x) for name, x in values.items()},
        reach=reach,
        reach_mean=intervals.mean(reach),
        differences=differences,
        difference=intervals.mean(differences),
    )


def _line(arm: str, row: Row, is_baseline: bool) -> list[str]:
    cells = [row.means[name].text(form) for name, _, form in COLUMNS]
    difference = "" if is_baseline else row.difference.text(sign=True)
    reached = f"{row.reach_mean.count} of {len(row.reach)}"
    if row.reach_mean.count:
        reached = f"{row.reach_mean.mean:,.0f} ({reached})"
    cells = [arm, str(len(row.seeds)), cells[0], difference, *cells[1:]]
    cells.insert(7, reached if row.reach else "-")
    return cells


def _plain(value):
    """NaN is no JSON."""
    if isinstance(value, Mapping):
        return {name: _plain(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(x) for x in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value
