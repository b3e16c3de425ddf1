"""A sweep in numbers: its arms (selectors) over seeds, compared with a baseline."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.arenas import cost
from experiments.arenas.cost import LATE
from experiments.arenas.records import Groups, Recorded
from vade_jax import tables
from vade_jax.report import seeds
from vade_jax.report.seeds import Mean

# Shares of the baseline's best validation: the table has the rollouts that a run needs to reach each.
REACH = {"reach_90": 0.9, "reach_95": 0.95, "reach": 1.0}
# The arm with whose best the paper compares the others: "99.5 % of it for a third of the rollouts".
PEAK = "dapo"
EARLY = 10  # the first steps, in which a prior has to show
COLUMNS = (  # columns of the table: (name, heading, format)
    ("late", f"mean of the last {LATE} validations", "{:.3f}"),
    ("difference", "difference to {baseline}", "{:.3f}"),
    ("last", "last validation", "{:.3f}"),
    ("effective_ratio", "effective ratio", "{:.2f}"),
    ("early", f"in {EARLY} steps", "{:.2f}"),
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
    f"Difference to {{baseline}}: the mean of the last {LATE} validations, minus that of {{baseline}} with the "
    "same seed; if one of the two has fewer, so many of both. The validation before the first step is never one "
    "of them. If the interval does not contain 0, this number of seeds shows a difference.",
    "Effective ratio, as in the paper: the share of the trained groups that are neither all right nor all "
    f"wrong, averaged over all steps and over the first {EARLY}.",
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
    # Of `late` to the baseline's, one for each shared seed
    differences: tuple[float, ...]
    difference: Mean
    equal: Mapping[str, Mean]  # the same at each axis of `cost.EQUAL`, as `difference` at "steps"
    costs: Mapping[str, Mean]  # by metric of `cost.COSTS`
    of_peak: Mean  # best validation in % of the best of `PEAK`, over shared seeds


@dataclasses.dataclass(frozen=True)
class Comparison:
    """All arms, by data/loss, then by label."""

    baseline: str
    groups: Mapping[str, Mapping[str, Arm]]


def compare(groups: Groups, *, baseline: str = "uniform") -> Comparison:
    """Returns the arms of each group in numbers.

    Args:
        groups: runs by data/loss, then by arm.
        baseline: the arm that the others are compared with, in each group that has it.

    Raises:
        ValueError: an arm has two runs of one seed.
    """
    compared = {}
    for name, arms in groups.items():
        runs = {arm: _by_seed(arm, recorded) for arm, recorded in arms.items()}
        against, peak = runs.get(baseline, {}), runs.get(PEAK, {})
        compared[name] = {arm: _arm(of_arm, against, peak) for arm, of_arm in runs.items()}
    return Comparison(baseline=baseline, groups=compared)


def _by_seed(arm: str, recorded: Sequence[Recorded]) -> dict[int, Recorded]:
    runs: dict[int, Recorded] = {}
    for run in sorted(recorded, key=lambda run: run.seed):
        if (other := runs.setdefault(run.seed, run)) is not run:
            raise ValueError(
                f"{arm}: {other.name} and {run.name} both have seed {run.seed}: give one of them"
            )
    return runs


def of_run(run: Recorded) -> dict[str, float]:
    """Returns a run's values by the names of `OWN`; NaN where nothing was measured."""
    outcome, early = run.outcome, run.outcome.effective.values[:EARLY]
    forgotten = outcome.forgotten.values[-LATE:]
    return {
        "late": cost.late(outcome.validations),
        "last": outcome.last,
        "effective_ratio": outcome.effective_ratio,
        "early": float(np.mean(early)) if early.size else np.nan,
        "overshoot": -outcome.bias,
        "forgotten": float(np.mean(forgotten)) if forgotten.size else np.nan,
        "hopeless": run.hopeless,
    }


def best(run: Recorded) -> float:
    """Returns the best validation, without the one before the first step."""
    validations = run.outcome.validations
    return max(validations.values[validations.steps > 0], default=np.nan)


def rollouts_to_reach(run: Recorded, target: float) -> float:
    """Returns the rollouts spent by the first validation of at least `target`; NaN if there is none.

    The validation before the first step is none: a policy that RL makes worse has reached nothing.
    """
    validations = run.outcome.validations
    rollouts, scores = validations.against("rollouts")
    # The tolerance lets a mean reach an equal mean that was rounded differently.
    reached = np.flatnonzero((scores >= target - 1e-9) & (validations.steps > 0))
    return float(rollouts[reached[0]]) if reached.size else np.nan


def _arm(
    runs: Mapping[int, Recorded], against: Mapping[int, Recorded], peak: Mapping[int, Recorded]
) -> Arm:
    of_runs = [of_run(run) for run in runs.values()]
    values = {name: tuple(of[name] for of in of_runs) for name in OWN}
    pairs = [(run, against[seed]) for seed, run in runs.items() if seed in against]
    validations = [(one.outcome.validations, other.outcome.validations) for one, other in pairs]
    equal = {
        axis: tuple(cost.difference(*pair, axis) for pair in validations) for axis in cost.EQUAL
    }
    reach = {
        name: tuple(rollouts_to_reach(run, share * best(other)) for run, other in pairs)
        for name, share in REACH.items()
    }
    # A mean over only the runs that reach the target would look better the fewer of them do, so the
    # others count with all their rollouts.
    paid = [run.outcome.rollouts for run, _ in pairs]
    costs = [cost.of_run(run.records) for run in runs.values()]
    return Arm(
        seeds=tuple(runs),
        values=values,
        means={name: seeds.mean(x) for name, x in values.items()},
        reach=reach,
        reach_means={
            name: seeds.mean(np.where(np.isnan(spent), paid, spent))
            for name, spent in reach.items()
        },
        differences=equal["steps"],
        difference=seeds.mean(equal["steps"]),
        equal={axis: seeds.mean(x) for axis, x in equal.items()},
        costs={name: seeds.mean([of[name] for of in costs]) for name, *_ in cost.COSTS},
        of_peak=seeds.mean([100 * best(runs[s]) / best(peak[s]) for s in runs if s in peak]),
    )


# ------------------------------------------------------------------------------ tables
def markdown(compared: Comparison) -> str:
    """Returns a table for each group, and notes on what the columns mean."""
    base = compared.baseline
    with_peak = any(PEAK in arms for arms in compared.groups.values())
    columns = [column for column in COLUMNS if with_peak or column[0] != "of_peak"]
    head = ["arm", "seeds", *(heading.format(baseline=base) for _, heading, _ in columns)]
    texts = []
    for name, arms in compared.groups.items():
        lines = []
        for label, arm in arms.items():
            line = [label, str(len(arm.seeds))]
            line += [cell(arm, column, form) for column, _, form in columns]
            if label == base:  # its difference to itself is always 0
                line[head.index(f"difference to {base}")] = ""
            lines.append(line)
        texts.append(f"## {name}\n\n{tables.markdown(head, lines)}\n")
        texts.append(f"Cost:\n\n{tables.markdown(*cost.table(arms, base))}\n")
    notes = [note for note in NOTES if with_peak or not note.startswith("% of")]
    notes = "\n".join(f"- {note.format(baseline=base)}" for note in (*notes, *cost.NOTES))
    return "\n".join([*texts, notes])


def cell(arm: Arm, column: str, form: str) -> str:
    """Returns an arm's value in one of `COLUMNS`."""
    if column not in REACH:
        mean = {"difference": arm.difference, "of_peak": arm.of_peak, **arm.means}[column]
        return mean.text(form, sign=column == "difference", of=len(arm.seeds))
    spent, mean = np.array(arm.reach[column]), arm.reach_means[column]
    count = np.count_nonzero(~np.isnan(spent))
    reached = f"{count} of {len(spent)}"
    if count:
        at_least = "≥ " if count < len(spent) else ""
        reached = f"{at_least}{form.format(mean.mean)} ({reached})"
    return reached if spent.size else "-"
