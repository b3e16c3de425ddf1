"""A sweep in numbers: its arms (selectors) over seeds, compared with a baseline, and what they chose."""

import collections
import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.arenas import cost
from experiments.arenas.cost import LATE
from experiments.arenas.outcome import Outcome
from experiments.arenas.records import Groups, Recorded
from vade_jax import atomic, tables
from vade_jax.report import curves
from vade_jax.report.curves import Mean
from vade_jax.store import rollout_log
from vade_jax.types import PathLike

LAST_PART = 0.25  # of a run's steps: the last ones, in which `selection_table` counts groups
# Shares of the baseline's best validation: the table has the rollouts that a run needs to reach each.
REACH = {"reach_90": 0.9, "reach_95": 0.95, "reach": 1.0}
# The arm with whose best the paper compares the others: "99.5 % of it for a third of the rollouts".
PEAK = "dapo"
COLUMNS = (  # columns of the table: (name, heading, format)
    ("late", f"mean of the last {LATE} validations", "{:.3f}"),
    ("difference", "difference to {baseline}{at}", "{:.3f}"),
    ("last", "last validation", "{:.3f}"),
    ("effective_ratio", "effective ratio", "{:.2f}"),
    ("varied", "rewards differ", "{:.2f}"),
    ("overshoot", "forecast less observed", "{:.2f}"),
    ("reach_90", "rollouts to 90 % of {baseline}'s best", "{:,.0f}"),
    ("reach_95", "to 95 %", "{:,.0f}"),
    ("reach", "to all of it", "{:,.0f}"),
    ("of_peak", f"best, % of {PEAK}'s", "{:.1f}"),
    ("forgotten", "known questions forgotten", "{:.3f}"),
    ("hopeless", "share on hopeless prompts", "{:.3f}"),
)
OWN = tuple(name for name, _, _ in COLUMNS if name not in ("difference", "of_peak", *REACH))
NOTES = (
    "Mean ± half of the 95 % interval over seeds (Student's t); (2 of 8): over so many of the seeds, as the others "
    "have no such value or no run of {baseline} to be compared with. Validation accuracy: the share of right "
    "answers to held-out questions, with `eval.num_samples` answers to each (by default 4).",
    f"Difference to {{baseline}}{{at}}: the mean of the last {LATE} validations, minus that of {{baseline}} with the "
    "same seed; if one of the two has fewer, so many of both. The validation before the first step is never one "
    "of them. If the interval does not contain 0, this number of seeds shows a difference.",
    "Effective ratio, as in the paper: the share of the trained groups that are neither all right nor all "
    "wrong, averaged over steps. Rewards differ: the share of all groups in which rewards differ.",
    "Forecast less observed: the effective ratio that a selector's posterior predicts, less what came; mean "
    "over steps.",
    "Rollouts to 90, 95 and 100 % of {baseline}'s best: what a run has spent when it first reaches that share "
    "of the best validation of {baseline} with the same seed, and how many runs reach it. A run that never "
    "does counts with all its rollouts, so that the mean is a lower bound: ≥.",
    f"% of {PEAK}'s: the best validation of a run over that of {PEAK} with the same seed.",
    f"Forgotten: of the validation questions that a run once answered only right, the share that it now "
    f"answers less than half right; mean of the last {LATE} validations.",
    "Hopeless: the picture does not show the answer, or the gold is wrong.",
)


# ------------------------------------------------------------------------------ arms
@dataclasses.dataclass(frozen=True)
class Arm:
    """One selector with one loss on one set of data, over its seeds."""

    seeds: tuple[int, ...]
    values: Mapping[str, tuple[float, ...]]  # by the names of `OWN`: one value a seed
    means: Mapping[str, Mean]
    # By the names of `REACH`, for each seed that the baseline has too: rollouts; NaN: not reached.
    reach: Mapping[str, tuple[float, ...]]
    reach_means: Mapping[str, Mean]  # a run that falls short counts with all its rollouts
    # Of `late` to the baseline's at equal `Comparison.at`, one for each shared seed
    differences: tuple[float, ...]
    difference: Mean
    equal: Mapping[str, Mean]  # the same at each axis of `cost.EQUAL`
    costs: Mapping[str, Mean]  # by metric of `cost.COSTS`
    of_peak: Mean  # best validation in % of the best of `PEAK`, over shared seeds


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All arms, by data/loss, then by label."""

    baseline: str
    groups: Mapping[str, Mapping[str, Arm]]
    at: str = "steps"  # what two runs that are compared have spent alike, an axis of `cost.EQUAL`

    @property
    def at_equal(self) -> str:
        """`at` in words, such as " equal tokens"; "" if whole runs are compared."""
        return "" if self.at == "steps" else f" {cost.EQUAL[self.at]}"


def compare(groups: Groups, *, baseline: str = "uniform", at: str = "steps") -> Comparison:
    """Returns the arms of each group in numbers.

    Args:
        groups: runs by data/loss, then by arm.
        baseline: the arm that the others are compared with, in each group that has it.
        at: what two runs have spent alike where they are compared, an axis of `cost.EQUAL`.

    Raises:
        ValueError: an arm has two runs of one seed.
    """
    compared = {}
    for name, arms in groups.items():
        runs = {arm: _by_seed(arm, recorded) for arm, recorded in arms.items()}
        against, peak = runs.get(baseline, {}), runs.get(PEAK, {})
        compared[name] = {arm: _arm(of_arm, against, peak, at) for arm, of_arm in runs.items()}
    return Comparison(baseline=baseline, groups=compared, at=at)


def _by_seed(arm: str, recorded: Sequence[Recorded]) -> dict[int, Outcome]:
    runs = {}
    for run in recorded:
        if run.seed in runs:
            raise ValueError(
                f"{arm}: {run.name} and {runs[run.seed].name} both have seed "
                f"{run.seed}: give one of them"
            )
        runs[run.seed] = run
    return {seed: runs[seed].outcome for seed in sorted(runs)}


def _arm(
    runs: Mapping[int, Outcome],
    against: Mapping[int, Outcome],
    peak: Mapping[int, Outcome],
    at: str,
) -> Arm:
    values = {name: tuple(getattr(run, name) for run in runs.values()) for name in OWN}
    shared = [seed for seed in runs if seed in against]
    equal = {
        axis: tuple(
            cost.difference(runs[s].validations, against[s].validations, axis) for s in shared
        )
        for axis in cost.EQUAL
    }
    reach = {
        name: tuple(runs[s].rollouts_to_reach(share * against[s].best) for s in shared)
        for name, share in REACH.items()
    }
    return Arm(
        seeds=tuple(runs),
        values=values,
        means={name: curves.mean(x) for name, x in values.items()},
        reach=reach,
        # A mean over only the runs that reach the target would look better the fewer of them do, so
        # the others count with all their rollouts.
        reach_means={
            name: curves.mean(np.where(np.isnan(spent), [runs[s].rollouts for s in shared], spent))
            for name, spent in reach.items()
        },
        differences=equal[at],
        difference=curves.mean(equal[at]),
        equal={axis: curves.mean(x) for axis, x in equal.items()},
        costs={
            name: curves.mean([run.costs[name] for run in runs.values()]) for name, *_ in cost.COSTS
        },
        of_peak=curves.mean([100 * runs[s].best / peak[s].best for s in runs if s in peak]),
    )


# ------------------------------------------------------------------------------ tables
def markdown(compared: Comparison) -> str:
    """Returns a table for each group, and notes on what the columns mean."""
    base, at = compared.baseline, compared.at_equal
    with_peak = any(PEAK in arms for arms in compared.groups.values())
    columns = [column for column in COLUMNS if with_peak or column[0] != "of_peak"]
    words = {"baseline": base, "at": at}
    head = ["arm", "seeds", *(heading.format(**words) for _, heading, _ in columns)]
    texts = []
    for name, arms in compared.groups.items():
        lines = []
        for label, arm in arms.items():
            line = [label, str(len(arm.seeds))]
            line += [cell(arm, column, form) for column, _, form in columns]
            if label == base:  # its difference to itself is always 0
                line[head.index(f"difference to {base}{at}")] = ""
            lines.append(line)
        texts.append(f"## {name}\n\n{tables.markdown(head, lines)}\n")
        texts.append(f"Cost:\n\n{tables.markdown(*costs(arms, base))}\n")
    notes = [note for note in NOTES if with_peak or not note.startswith("% of")]
    notes = "\n".join(f"- {note.format(**words)}" for note in (*notes, *cost.NOTES))
    return "\n".join([*texts, notes])


def costs(arms: Mapping[str, Arm], baseline: str) -> tuple[list[str], list[list[str]]]:
    """Returns `cost.table` of the arms of a group."""
    means = {label: arm.costs for label, arm in arms.items()}
    return cost.table(means, {label: arm.equal for label, arm in arms.items()}, baseline)


def cell(arm: Arm, column: str, form: str) -> str:
    """Returns an arm's value in one of `COLUMNS`."""
    seeds = len(arm.seeds)
    if column == "difference":
        return arm.difference.text(form, sign=True, of=seeds)
    if column == "of_peak":
        return arm.of_peak.text(form, of=seeds)
    if column not in REACH:
        return arm.means[column].text(form, of=seeds)
    spent, mean = np.array(arm.reach[column]), arm.reach_means[column]
    count = np.count_nonzero(~np.isnan(spent))
    reached = f"{count} of {len(spent)}"
    if count:
        at_least = "≥ " if count < len(spent) else ""
        reached = f"{at_least}{form.format(mean.mean)} ({reached})"
    return reached if spent.size else "-"


def write(
    groups: Groups, directory: PathLike, *, baseline: str = "uniform", at: str = "steps"
) -> Comparison:
    """Compares the arms, writes table.md and table.json, and returns the numbers.

    The JSON has every number, those of single seeds included; null means not measured or not reached.
    """
    compared = compare(groups, baseline=baseline, at=at)
    folder = pathlib.Path(directory)
    atomic.write_text(folder / "table.md", markdown(compared) + "\n")
    numbers = _without_nan(dataclasses.asdict(compared))
    atomic.write_text(folder / "table.json", json.dumps(numbers, indent=1) + "\n")
    return compared


def _without_nan(value: Any) -> Any:
    """Returns the value with null for NaN and infinities, which JSON cannot hold."""
    if isinstance(value, Mapping):
        return {name: _without_nan(x) for name, x in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(x) for x in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return value


# ------------------------------------------------------------------------------ what was chosen
def write_selection(
    directories: Mapping[str, Mapping[str, Sequence[PathLike]]], folder: PathLike
) -> None:
    """Writes selection.md: what the arms chose, from run directories by data/loss, then by arm.

    Rollout logs are large and may have been deleted: a note names the runs without them.
    """
    chosen = [f"## {name}\n\n{_selection(arms)}\n" for name, arms in directories.items()]
    chosen.append(
        f"14% (0.70): of the groups of the last {LAST_PART:.0%} of the steps 14 % were of this kind, and\n"
        "of these 70 % had right and wrong answers.\n"
    )
    atomic.write_text(pathlib.Path(folder, "selection.md"), "\n".join(chosen))


def _selection(arms: Mapping[str, Sequence[PathLike]]) -> str:
    """Returns the table of the runs that still have their rollout logs, and a note on those that do not."""
    logged = {arm: [x for x in runs if rollout_log.paths(x)] for arm, runs in arms.items()}
    logged = {arm: runs for arm, runs in logged.items() if runs}
    gone = [str(x) for runs in arms.values() for x in runs if not rollout_log.paths(x)]
    parts = [selection_table(logged)] if logged else []
    if gone:
        parts.append(f"Not counted, as their rollouts are not there: {', '.join(gone)}")
    return "\n\n".join(parts)


def selection_table(arms: Mapping[str, Sequence[PathLike]]) -> str:
    """Returns a row for each family and level, with each arm's share of groups in its last steps."""
    counted = {arm: _count_groups(directories) for arm, directories in arms.items()}
    total = sum((count for count, _ in counted.values()), collections.Counter())
    families = sorted(total, key=lambda family: (-total[family], family))
    lines = []
    for family in families:
        line = [family]
        for count, mixed in counted.values():
            num = count[family]
            share = num / count.total() if num else 0
            line.append(f"{share:.0%} ({mixed[family] / num:.2f})" if num else "-")
        lines.append(line)
    return tables.markdown(["family, level", *counted], lines)


def _count_groups(
    workdirs: Sequence[PathLike],
) -> tuple[collections.Counter, collections.Counter]:
    """Returns two counts by family, over the last steps of the runs: of all groups, and of mixed groups."""
    count, mixed = collections.Counter(), collections.Counter()
    for workdir in workdirs:
        paths = rollout_log.paths(workdir)
        if not paths:
            raise FileNotFoundError(f"no rollouts in {workdir}/rollouts")
        for path in paths[-max(1, round(LAST_PART * len(paths))) :]:
            rows = rollout_log.read(path, ["group", "correct", "metadata"])
            answers = collections.defaultdict(list)
            for group, correct in zip(rows["group"], rows["correct"], strict=True):
                if correct is not None:  # None: the answer was not judged
                    answers[group].append(correct)
            metadata = dict(zip(rows["group"], rows["metadata"], strict=True))
            for group, correct in answers.items():
                family = rollout_log.subset(json.loads(metadata[group])) or "all"
                count[family] += 1
                mixed[family] += rollout_log.is_mixed(sum(correct), len(correct))
    return count, mixed
