"""A sweep in numbers: its arms (selectors) over seeds, compared with a baseline."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from experiments.arenas import cost, seeds
from experiments.arenas.cost import LATE
from experiments.arenas.records import Groups, Recorded
from experiments.arenas.seeds import Mean
from vade_jax import tables
from vade_jax.report import curves

EARLY = 10  # the first steps, in which a prior should have an effect
COLUMNS = (  # columns of the table: (name, heading, format)
    ("late", f"mean of the last {LATE} validations", "{:.3f}"),
    ("difference", "difference to {baseline}", "{:.3f}"),
    ("unlearned", "runs that unlearned a kind", "{:.0f}"),
    ("late_others", "mean of the other runs", "{:.3f}"),
    ("difference_others", "difference of the other pairs", "{:.3f}"),
    ("last", "last validation", "{:.3f}"),
    ("effective_ratio", "effective ratio", "{:.2f}"),
    ("early", f"in {EARLY} steps", "{:.2f}"),
    ("overshoot", "forecast less observed", "{:.2f}"),
    ("forgotten", "known questions forgotten", "{:.3f}"),
    ("hopeless", "share on hopeless prompts", "{:.3f}"),
)
SIGNED = ("difference", "difference_others")
OWN = tuple(name for name, _, _ in COLUMNS if name not in (*SIGNED, "late_others"))
NOTES = (
    "Mean ± half of the 95 % interval over seeds, by a bootstrap if there are "
    f"{seeds.LEAST} or more, else Student's t; (2 of 8): over 2 of 8 seeds, because the others have no such "
    "value or no run of {baseline} to be compared with. Validation accuracy: the share of right answers to "
    "held-out questions, with `eval.num_samples` answers to each (by default 4).",
    f"Difference to {{baseline}}: the mean of the last {LATE} validations, minus that of {{baseline}} with the "
    "same seed; if one of the two has fewer, as many of both. The validation before the first step is never one "
    "of them. If the interval does not contain 0, this number of seeds shows a difference.",
    "A run has unlearned a kind if its last validation finds more than a tenth of the known questions of one "
    "family forgotten; in brackets: the 95 % interval of the share of such runs (Wilson's). Other runs and pairs: "
    "without one that unlearned a kind.",
    "Effective ratio, as in the paper: the share of the trained groups that are neither all right nor all "
    f"wrong, averaged over all steps and over the first {EARLY}.",
    "Forecast less observed: the effective ratio that a selector's posterior predicts, minus the observed one; mean "
    "over steps.",
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
    means: Mapping[str, Mean]  # by the names of `COLUMNS`
    # Of `late` to the baseline's, one for each shared seed
    differences: tuple[float, ...]
    equal: Mapping[str, Mean]  # the same at each axis of `cost.EQUAL`, as `differences` at "steps"
    costs: Mapping[str, Mean]  # by metric of `cost.COSTS`


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
        against = runs.get(baseline, {})
        compared[name] = {arm: _arm(of_arm, against) for arm, of_arm in runs.items()}
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
        "unlearned": unlearned(run),
        "last": outcome.last,
        "effective_ratio": outcome.effective_ratio,
        "early": float(np.mean(early)) if early.size else np.nan,
        "overshoot": -outcome.bias,
        "forgotten": float(np.mean(forgotten)) if forgotten.size else np.nan,
        "hopeless": run.hopeless,
    }


def unlearned(run: Recorded) -> float:
    """Returns whether a run ends with a kind unlearned, 1 or 0; NaN: not measured.

    Records know the family of a question, not its level: a kind is a family here.
    """
    last = [curve.values[-1] for curve in run.outcome.forgotten_kinds.values() if curve.steps.size]
    return float(max(last) > curves.UNLEARNED) if last else np.nan


def _arm(runs: Mapping[int, Recorded], against: Mapping[int, Recorded]) -> Arm:
    of_runs = [of_run(run) for run in runs.values()]
    values = {name: tuple(of[name] for of in of_runs) for name in OWN}
    pairs = [(run, against[seed]) for seed, run in runs.items() if seed in against]
    validations = [(one.outcome.validations, other.outcome.validations) for one, other in pairs]
    equal = {
        axis: tuple(cost.difference(*pair, axis) for pair in validations) for axis in cost.EQUAL
    }
    is_other = [1 not in map(unlearned, pair) for pair in pairs]
    derived = {
        "difference": equal["steps"],
        "late_others": [of["late"] for of in of_runs if of["unlearned"] != 1],
        "difference_others": np.where(is_other, equal["steps"], np.nan),
    }
    costs = [cost.of_run(run.records) for run in runs.values()]
    return Arm(
        seeds=tuple(runs),
        values=values,
        means={name: seeds.mean(x) for name, x in (values | derived).items()},
        differences=equal["steps"],
        equal={axis: seeds.mean(x) for axis, x in equal.items()},
        costs={name: seeds.mean([of[name] for of in costs]) for name, *_ in cost.COSTS},
    )


# ------------------------------------------------------------------------------ tables
def markdown(compared: Comparison) -> str:
    """Returns a table for each group, and notes on what the columns mean."""
    base = compared.baseline
    head = ["arm", "seeds", *(heading.format(baseline=base) for _, heading, _ in COLUMNS)]
    texts = []
    for name, arms in compared.groups.items():
        lines = []
        for label, arm in arms.items():
            line = [label, str(len(arm.seeds))]
            line += [cell(arm, column, form) for column, _, form in COLUMNS]
            if label == base:  # its difference to itself is always 0
                for at, (column, *_) in enumerate(COLUMNS, 2):
                    line[at] = "" if column in SIGNED else line[at]
            lines.append(line)
        texts.append(f"## {name}\n\n{tables.markdown(head, lines)}\n")
        texts.append(f"Cost:\n\n{tables.markdown(*cost.table(arms, base))}\n")
    notes = "\n".join(f"- {note.format(baseline=base)}" for note in (*NOTES, *cost.NOTES))
    return "\n".join([*texts, notes])


def cell(arm: Arm, column: str, form: str) -> str:
    """Returns an arm's value in one of `COLUMNS`."""
    if column == "unlearned":
        return seeds.share(arm.values[column])
    return arm.means[column].text(form, sign=column in SIGNED, of=len(arm.seeds))
