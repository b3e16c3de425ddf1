"""Makes the figures and tables of the results in docs/ again, from the records in docs/results.

    python -m experiments.arenas.pages

Figures are drawn into docs/. A table stands in its page below the call that prints it, which a reader does
not see:

    [[[cog from experiments.arenas import pages
    pages.table("uniform vade", {"clean": pages.Column("frontier")}) ]]]

cog writes what the call prints below it. A test fails if a table is not that of the records.
"""

import argparse
import dataclasses
import functools
import itertools
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import cogapp

from experiments.arenas import (
    across,
    comparison,
    controls,
    cost,
    figures,
    idea,
    records,
)
from experiments.arenas.comparison import Arm, Comparison
from vade_jax import tables
from vade_jax.report import curves, seeds
from vade_jax.report.seeds import Mean

DOCS = pathlib.Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
PAGES = ("results.md", "arenas/*.md")  # with tables
USUAL = 12  # seeds; a cell with another number of them says so
FAMILY = re.compile(r"val-aux/validation/(?P<family>[^/]+)/acc/mean@\d+")
FORMS = {name: form for name, _, form in comparison.COLUMNS}
CLEAN, WRONG, DIFFERENCE = "clean/gspo", "wrong10/gspo", "difference"
# What two runs that are compared have spent alike, by quantity
DIFFERENCES = {DIFFERENCE: "steps"} | {f"equal_{axis}": axis for axis in cost.EQUAL}
# A table of records, or several that are joined, each with an ending that its arms get
Table = str | Mapping[str, str]
Gain = tuple[str, Sequence[str]]  # an arm, and columns of a table


# ------------------------------------------------------------------------------ records
@functools.cache
def _records(name: str) -> records.Groups:
    return records.read(RESULTS / f"{name}.parquet")


@functools.cache
def _read(key: tuple[tuple[str, str], ...]) -> records.Groups:
    parts = [
        {x: {arm + ending: y for arm, y in of.items()} for x, of in _records(name).items()}
        for name, ending in key
    ]
    return functools.reduce(records.joined, parts)


@functools.cache
def _compared(key: tuple[tuple[str, str], ...], baseline: str) -> Comparison:
    return comparison.compare(_read(key), baseline=baseline)


class Column(NamedTuple):
    """One quantity of the arms of one group, which a table shows as a column."""

    table: Table
    group: str = CLEAN  # data/loss
    show: str = DIFFERENCE  # a name of `comparison.COLUMNS`, or of `DIFFERENCES`

    @property
    def runs(self) -> Mapping[str, Sequence[records.Recorded]]:
        """The runs by arm."""
        return _read(self._key())[self.group]

    def arms(self, baseline: str) -> Mapping[str, Arm]:
        """Returns the arms, compared with a baseline."""
        return self.groups(baseline)[self.group]

    def groups(self, baseline: str) -> Mapping[str, Mapping[str, Arm]]:
        """Returns the arms of all groups of the table."""
        return _compared(self._key(), baseline).groups

    def _key(self) -> tuple[tuple[str, str], ...]:
        return tuple(({self.table: ""} if isinstance(self.table, str) else self.table).items())

    def cell(self, arm: str, baseline: str) -> str:
        """Returns an arm's value as text; "" if it did not run."""
        if arm not in (arms := self.arms(baseline)):
            return ""
        of_arm, form = arms[arm], FORMS.get(self.show, "{:.3f}")
        if self.show in comparison.REACH:
            value = comparison.cell(of_arm, self.show, form)
            return "" if value == "-" else value
        if self.show not in DIFFERENCES:
            is_peak = self.show == "of_peak"
            return _text(of_arm.of_peak if is_peak else of_arm.means[self.show], form)
        if arm == baseline:
            return f"{of_arm.means['late'].text()}{_seeds(len(of_arm.seeds))}"
        return _text(of_arm.equal[DIFFERENCES[self.show]], sign=True)


# ------------------------------------------------------------------------------ figures
SHOWN = ("uniform", "vade", "pooled", "informed")
# Curves of one arena: the figure in docs/, its heading, the arena, the arms
EIGHT = "eight updates, right labels"
CURVES = {
    "frontier.png": (EIGHT, Column("frontier_8_updates"), SHOWN),
    "digits.png": (EIGHT, Column("digits_8_updates"), SHOWN),
    "ladder.png": (EIGHT, Column("ladder_8_updates"), SHOWN),
    "lengths.png": (EIGHT, Column("lengths"), ("uniform", "vade", "vade_per_token", "pooled")),
    "smollm.png": ("SmolLM2-135M-Instruct", Column("smollm"), SHOWN),
    "precision.png": (
        "weights",
        Column("precision"),
        ("float32", "float32_halves", "bfloat16", "bfloat16_plain"),
    ),
}
# Drawn by `across.draw`: conditions
CONDITIONS = {
    "frontier": Column("frontier_8_updates"),
    "frontier, wrong labels": Column("frontier_8_updates", WRONG),
    "digits": Column("digits_8_updates"),
    "digits, wrong labels": Column("digits_8_updates", WRONG),
}
LAG_ARENAS = ("frontier", "digits")
# What the page of the lag compares: where the runs are, by arena. The last two differ in the loss alone:
# with importance weights, the correction, and without.
LAGS = {
    "in turns": lambda arena: Column(f"{arena}_8_updates"),
    "L = 1": lambda arena: Column("lag", f"{arena}_1/gspo"),
    "L = 4": lambda arena: Column("lag", f"{arena}_4/gspo"),
    "L = 4, uncorrected": lambda arena: Column("lag", f"{arena}_4_none/gspo"),
}


def main() -> None:
    """Draws the figures and writes the tables."""
    parser = argparse.ArgumentParser("experiments.arenas.pages", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.parse_args()
    idea.draw(DOCS / "idea.png")
    for name, (heading, column, arms) in CURVES.items():
        runs = {arm: column.runs[arm] for arm in arms}
        figures.draw_curves({heading: runs}, DOCS / name)
    shown = {name: {arm: x.runs[arm] for arm in SHOWN} for name, x in CONDITIONS.items()}
    across.draw(comparison.compare(shown), DOCS / "selectors.png")
    paths = [str(path) for name in PAGES for path in sorted(DOCS.glob(name))]
    sys.exit(cogapp.Cog().main(["cog", "-r", "-P", *paths]))


def lagged() -> records.Groups:
    """Returns the runs of each selector in each arena, by their lag; all have the same seeds."""
    groups = {
        f"{arena}, {arm}": {lag: column(arena).runs[arm] for lag, column in LAGS.items()}
        for arena, arm in itertools.product(LAG_ARENAS, SHOWN)
    }
    every = [runs for by_lag in groups.values() for runs in by_lag.values()]
    shared = set.intersection(*({run.seed for run in runs} for runs in every))
    return {
        name: {lag: [run for run in runs if run.seed in shared] for lag, runs in by_lag.items()}
        for name, by_lag in groups.items()
    }


# ------------------------------------------------------------------------------ what the pages call
def table(
    arms: str,
    columns: Mapping[str, Column],
    *,
    baseline: str = "uniform",
    mean: Mapping[str, Sequence[str]] = {},
    names: Mapping[str, str] = {},
    turned: bool = False,
) -> None:
    """Prints a row for each arm: its difference to the baseline, or another quantity of the sweeps' table.

    Args:
        arms: labels with spaces between.
        columns: what is shown, by heading.
        baseline: its own row has its accuracy where the others have a difference to it.
        mean: heading -> columns of differences; a last column has the mean of these, seed by seed.
        names: other names for some of the arms.
        turned: whether arms are columns.
    """
    rows = [["", *columns, *mean]]
    for arm in arms.split():
        row = [names.get(arm, arm), *(column.cell(arm, baseline) for column in columns.values())]
        for of in mean.values():
            groups = {name: columns[name].arms(baseline) for name in of}
            value = across.seeds_mean(Comparison(baseline, groups), arm)
            row.append(_text(value, sign=True) if arm != baseline else "")
        rows.append(row)
    head, *rows = zip(*rows, strict=True) if turned else rows
    _show(head, rows)


def contrasts(columns: Mapping[str, Column], rows: Mapping[str, Sequence[Gain]]) -> None:
    """Prints by how much one gain over uniform is above another, seed by seed.

    Args:
        columns: as in `table`.
        rows: heading -> two gains; each is an arm and the columns that its gain is the mean of.
    """

    def gain(arm: str, names: Sequence[str]) -> dict[int, float]:
        groups = {name: columns[name].arms("uniform") for name in names}
        return across.by_seed(Comparison("uniform", groups), arm)

    lines = []
    for heading, (one, other) in rows.items():
        value = seeds.mean(seeds.differences(gain(*one), gain(*other)))
        lines.append([heading, _text(value, sign=True)])
    _show(["gain of one less gain of the other", ""], lines)


def moved_by_lag() -> None:
    """Prints how far lag moves each selector's accuracy in each arena, and the means of arenas and of all.

    The last column is what the correction brings at the largest lag.
    """
    in_turns, *others = LAGS
    corrected, uncorrected = others[-2:]
    to_turns = comparison.compare(lagged(), baseline=in_turns)
    to_uncorrected = comparison.compare(lagged(), baseline=uncorrected)
    columns = [*((to_turns, lag) for lag in others), (to_uncorrected, corrected)]
    rows = []
    for name, arms in to_turns.groups.items():
        gains = [_text(x.groups[name][lag].difference, sign=True) for x, lag in columns]
        rows.append([name, _text(arms[in_turns].means["late"]), *gains])
    for heading, arenas in (*((f"{x}, mean", (x,)) for x in LAG_ARENAS), ("mean", LAG_ARENAS)):
        cells = []
        for x, lag in columns:
            of = {k: v for k, v in x.groups.items() if k.partition(",")[0] in arenas}
            mean = across.seeds_mean(dataclasses.replace(x, groups=of), lag)
            cells.append(_text(mean, sign=True))
        rows.append([heading, "", *cells])
    _show(["", *LAGS, "what the correction brings"], rows)


def rates(table: Table, arms: str, at: str) -> None:
    """Prints each arm's accuracy at each learning rate, a row for each group of a table.

    Args:
        table: with arms such as "vade@2e-4".
        arms: labels with spaces between; a cell has them in this order.
        at: the rates, with spaces between.
    """
    lines = []
    for group, ran in Column(table).groups("").items():
        cells = []
        for rate in at.split():
            at_rate = [ran.get(f"{arm}@{rate}") for arm in arms.split()]
            means = ["-" if arm is None else f"{arm.means['late'].mean:.3f}" for arm in at_rate]
            cells.append(" / ".join(means) if any(at_rate) else "")
        lines.append([group.partition("/")[0].replace("_", " "), *cells])
    _show(["", *at.split()], lines)


def by_family(table: Table, arms: str, group: str = CLEAN) -> None:
    """Prints the accuracy on each family of validation questions, and on all: before RL, then each arm's."""
    runs = {arm: Column(table, group).runs[arm] for arm in arms.split()}
    names = filter(None, map(FAMILY.fullmatch, next(iter(runs.values()))[0].records[-1]))
    read = {m["family"]: functools.partial(curves.named, name=m.string) for m in names}
    lines = []
    for family, curve in (read | {"all": curves.validation}).items():
        of_arms = [[curve(run.records) for run in of_arm] for of_arm in runs.values()]
        means = [seeds.mean([x.values[0] for x in of_arms[0]])]  # before RL the arms are alike
        means += [seeds.mean([cost.late(x) for x in of_arm]) for of_arm in of_arms]
        lines.append([family, *map(_text, means)])
    _show(["", "before RL", *runs], lines)


def passed(table: Table, group: str = CLEAN, baseline: str = "uniform") -> None:
    """Prints the controls of an arena."""
    column = Column(table, group)
    _show(*controls.table(controls.check(column.arms(baseline), baseline, column.runs[baseline])))


def spent(table: Table, arms: str, columns: Sequence[str], group: str = CLEAN) -> None:
    """Prints what each arm has cost; columns are headings of `cost.COSTS`."""
    compared = Column(table, group).arms("uniform")
    head, rows = cost.table({arm: compared[arm] for arm in arms.split()}, "uniform")
    places = [head.index(name) for name in columns]
    _show(["", *columns], [[row[0], *(row[i] for i in places)] for row in rows])


def _show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{tables.markdown(head, rows)}\n")  # a table that touches a comment is not rendered


def _text(mean: Mean, form: str = "{:.3f}", *, sign: bool = False) -> str:
    return f"{mean.text(form, sign=sign)}{_seeds(mean.count)}" if mean.count else ""


def _seeds(count: int) -> str:
    return "" if count == USUAL else f" ({count})"


if __name__ == "__main__":
    main()
