"""Makes the figures and tables of the results in docs/ again, from the records in docs/results.

    python -m experiments.arenas.pages

Figures are drawn into docs/. A table stands in its page below the call that prints it, which a reader does
not see:

    [[[cog from experiments.arenas import pages; pages.table("uniform vade", {"clean": "frontier"}) ]]]

cog writes what the call prints below it. A test fails if a table is not that of the records.
"""

import argparse
import contextlib
import dataclasses
import functools
import io
import itertools
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence

import cogapp
import numpy as np

from experiments import results
from experiments.arenas import across, comparison, controls, cost, foresight, records
from experiments.arenas.comparison import Arm, Comparison
from vade_jax import tables
from vade_jax.report import curves

DOCS = pathlib.Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
PAGES = ("results.md", "arenas/*.md")  # with tables
SHOWN = ("uniform", "vade", "pooled", "informed")
# Drawn by `results.write` of one arena: the figure in docs/, its heading, the arena's table, the arms
EIGHT = "eight updates, right labels"
CURVES = {
    "frontier.png": (EIGHT, "frontier_8_updates", SHOWN),
    "digits.png": (EIGHT, "digits_8_updates", SHOWN),
    "ladder.png": (EIGHT, "ladder_8_updates", SHOWN),
    "lengths.png": (EIGHT, "lengths", ("uniform", "vade", "vade_per_token", "pooled")),
    "smollm.png": ("SmolLM2-135M-Instruct", "smollm", SHOWN),
}
# Drawn by `across.draw`: a condition and its table
CONDITIONS = {
    "frontier": ("frontier_8_updates", "clean/gspo"),
    "frontier, wrong labels": ("frontier_8_updates", "wrong10/gspo"),
    "digits": ("digits_8_updates", "clean/gspo"),
    "digits, wrong labels": ("digits_8_updates", "wrong10/gspo"),
}
LAG_ARENAS = ("frontier", "digits")
# What is drawn of the lag: what the rollouts are and where their runs are, by arena. The last two differ in
# the loss alone: with importance weights, the correction, and without.
LAGS = {
    "in turns": ("{}_8_updates", "clean/gspo"),
    "L = 1": ("lag", "{}_1/gspo"),
    "L = 4": ("lag", "{}_4/gspo"),
    "L = 4, uncorrected": ("lag", "{}_4_none/gspo"),
}
Gain = tuple[str, Sequence[str]]  # an arm, and columns of a table
USUAL = 12  # seeds; a cell with another number of them says so
FAMILY = re.compile(r"val-aux/validation/(?P<family>[^/]+)/acc/mean@\d+")
FORMS = {name: form for name, _, form in comparison.COLUMNS}
GROUP, QUANTITY = "clean/gspo", "difference"  # of a column that names none
# What two runs that are compared have spent alike, by quantity
DIFFERENCES = {QUANTITY: "steps"} | {f"equal_{axis}": axis for axis in cost.EQUAL}


def main() -> None:
    """Draws the figures and writes the tables; it takes no arguments."""
    parser = argparse.ArgumentParser("experiments.arenas.pages", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.parse_args()
    for name, (heading, table, arms) in CURVES.items():
        draw(DOCS / name, results.only({heading: _read(table)[GROUP]}, arms))
    shown = {
        name: {arm: _read(table)[group][arm] for arm in SHOWN}
        for name, (table, group) in CONDITIONS.items()
    }
    across.draw(comparison.compare(shown), DOCS / "selectors.png")
    across.draw(comparison.compare(lagged(), baseline=next(iter(LAGS))), DOCS / "lag.png")
    paths = [str(path) for name in PAGES for path in sorted(DOCS.glob(name))]
    sys.exit(cogapp.Cog().main(["cog", "-r", "-P", *paths]))


def lagged() -> records.Groups:
    """Returns the runs of each selector in each arena, by their lag; all have the same seeds."""
    found = {
        f"{arena}, {arm}": {
            lag: _read(table.format(arena))[group.format(arena)][arm]
            for lag, (table, group) in LAGS.items()
        }
        for arena, arm in itertools.product(LAG_ARENAS, SHOWN)
    }
    every = [runs for by_lag in found.values() for runs in by_lag.values()]
    shared = set.intersection(*({run.seed for run in runs} for runs in every))
    return {
        name: {lag: [run for run in runs if run.seed in shared] for lag, runs in by_lag.items()}
        for name, by_lag in found.items()
    }


def draw(path: pathlib.Path, groups: records.Groups) -> None:
    """Draws the curves of a sweep's arms."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        results.write(groups, folder, "uniform")
        shutil.copy(pathlib.Path(folder) / "learning.png", path)


# ------------------------------------------------------------------------------ what the pages call
def table(
    arms: str,
    columns: Mapping[str, str],
    *,
    baseline: str = "uniform",
    mean: Mapping[str, Sequence[str]] = {},
) -> None:
    """Prints a row for each arm: its difference to the baseline, or another quantity of the sweeps' table.

    Args:
        arms: labels, or label=name to show another name, with spaces between.
        columns: heading -> "table", "table:data/loss" or "table:data/loss:quantity"; a quantity is a name of
            `comparison.COLUMNS` or of `DIFFERENCES`. "one*_4+other*_8" joins two tables, whose arms get these
            endings.
        baseline: its own row has its accuracy where the others have a difference to it.
        mean: heading -> columns of differences; a last column has the mean of these, seed by seed.
    """
    shown = dict(word.partition("=")[::2] for word in arms.split())
    found = {heading: _column(text, baseline) for heading, text in columns.items()}
    rows = []
    for arm, name in shown.items():
        row = [name or arm]
        for of_arms, quantity in found.values():
            row.append(_cell(of_arms[arm], quantity, arm == baseline) if arm in of_arms else "")
        for names in mean.values():
            joined = Comparison(baseline, {name: found[name][0] for name in names})
            value = across.seeds_mean(joined, arm)
            is_known = value.count and arm != baseline
            row.append(f"{value.text(sign=True)}{_seeds(value.count)}" if is_known else "")
        rows.append(row)
    _show(["", *columns, *mean], rows)


def turned(arms: str, rows: Mapping[str, str], *, baseline: str = "uniform") -> None:
    """Prints `table` with a row for each sweep and a column for each arm."""
    shown = dict(word.partition("=")[::2] for word in arms.split())
    found = {heading: _column(text, baseline) for heading, text in rows.items()}
    lines = [
        [heading, *(_cell(of[arm], what, arm == baseline) if arm in of else "" for arm in shown)]
        for heading, (of, what) in found.items()
    ]
    _show(["", *(name or arm for arm, name in shown.items())], lines)


def above(table: str, arms: str, quantities: Mapping[str, str]) -> None:
    """Prints quantities of the first arm, and how far each other arm's are above it, seed by seed.

    Args:
        table: of the records.
        arms: labels with spaces between.
        quantities: heading -> a name of `comparison.COLUMNS`.
    """
    first, *others = arms.split()
    found, rows = _compared(table, first).groups[GROUP], []
    for heading, quantity in quantities.items():
        of = {x: dict(zip(found[x].seeds, found[x].values[quantity], strict=True)) for x in found}
        cells = [f"{found[first].means[quantity].text()}{_seeds(len(of[first]))}"]
        for arm in others:
            value = curves.mean([x - of[first][seed] for seed, x in of[arm].items()])
            cells.append(f"{value.text(sign=True)}{_seeds(value.count)}")
        rows.append([heading, *cells])
    _show(["", *arms.split()], rows)


def contrasts(columns: Mapping[str, str], rows: Mapping[str, Sequence[Gain]]) -> None:
    """Prints by how much one gain over uniform is above another, seed by seed.

    Args:
        columns: as in `table`.
        rows: heading -> two gains; each is an arm and the columns that its gain is the mean of.
    """
    found = {name: _column(text, "uniform")[0] for name, text in columns.items()}
    lines = []
    for heading, gains in rows.items():
        one, other = (
            across.by_seed(Comparison("uniform", {name: found[name] for name in names}), arm)
            for arm, names in gains
        )
        value = curves.mean([one[seed] - other[seed] for seed in one if seed in other])
        lines.append([heading, f"{value.text(sign=True)}{_seeds(value.count)}"])
    _show(["gain of one less gain of the other", ""], lines)


def moved_by_lag() -> None:
    """Prints how far lag moves each selector's accuracy in each arena, and the means of arenas and of all.

    The last column is what the correction brings at the largest lag.
    """
    in_turns, *others = LAGS
    corrected, uncorrected = others[-2:]
    to_turns = comparison.compare(lagged(), baseline=in_turns)
    to_uncorrected = comparison.compare(lagged(), baseline=uncorrected)
    columns = [(to_turns, lag) for lag in LAGS] + [(to_uncorrected, corrected)]
    rows = [
        [name, *(_cell(x.groups[name][lag], QUANTITY, lag == in_turns) for x, lag in columns)]
        for name in to_turns.groups
    ]
    for heading, arenas in (*((f"{x}, mean", (x,)) for x in LAG_ARENAS), ("mean", LAG_ARENAS)):
        cells = [""]
        for x, lag in columns[1:]:
            of = {k: v for k, v in x.groups.items() if k.partition(",")[0] in arenas}
            mean = across.seeds_mean(dataclasses.replace(x, groups=of), lag)
            cells.append(f"{mean.text(sign=True)}{_seeds(mean.count)}")
        rows.append([heading, *cells])
    _show(["", *LAGS, "what the correction brings"], rows)


def by_lag(quantity: str) -> None:
    """Prints a quantity of `comparison.COLUMNS` in turns, then how far lag moves it, by selector.

    It is the mean over the arenas, seed by seed. Uniform, which has no difference, has its accuracy.
    """
    runs, rows, in_turns = lagged(), [], {}
    for lag in LAGS:
        groups = {
            arena: {arm: runs[f"{arena}, {arm}"][lag] for arm in SHOWN} for arena in LAG_ARENAS
        }
        compared = comparison.compare(groups).groups.values()
        row = [lag]
        for arm in SHOWN:
            is_gain = quantity == QUANTITY and arm != SHOWN[0]
            name = "late" if quantity == QUANTITY else quantity
            of_arenas = [x[arm].differences if is_gain else x[arm].values[name] for x in compared]
            of_seeds = np.mean(of_arenas, axis=0)
            is_first = arm not in in_turns
            first = in_turns.setdefault(arm, of_seeds)
            value = curves.mean(of_seeds if is_first else of_seeds - first)
            text = value.text(FORMS[quantity], sign=is_gain or not is_first)
            row.append(f"{text}{_seeds(value.count)}" if value.count else "")
        rows.append(row)
    _show(["", *SHOWN], rows)


def rates(table: str, arms: str, at: str) -> None:
    """Prints each arm's accuracy at each learning rate, a row for each group of a table.

    Args:
        table: with arms such as "vade@2e-4".
        arms: labels with spaces between; a cell has them in this order.
        at: the rates, with spaces between.
    """
    lines = []
    for group, found in _compared(table, "").groups.items():
        cells = []
        for rate in at.split():
            ran = [found.get(f"{arm}@{rate}") for arm in arms.split()]
            means = ["-" if arm is None else f"{arm.means['late'].mean:.3f}" for arm in ran]
            cells.append(" / ".join(means) if any(ran) else "")
        lines.append([group.partition("/")[0].replace("_", " "), *cells])
    _show(["", *at.split()], lines)


def by_family(table: str, arms: str, group: str = GROUP) -> None:
    """Prints the accuracy on each family of validation questions, and on all: before RL, then each arm's."""
    runs = {arm: _read(table)[group][arm] for arm in arms.split()}
    first, *_ = runs.values()
    found = (FAMILY.fullmatch(name) for name in first[0].records[-1])
    read: dict[str, Callable[[curves.Records], curves.Curve]] = {
        match["family"]: functools.partial(curves.named, name=match.string)
        for match in found
        if match
    }
    lines = []
    for family, curve in (read | {"all": curves.validation}).items():
        of_arms = [[curve(run.records) for run in of_arm] for of_arm in runs.values()]
        means = [curves.mean([x.values[0] for x in of_arms[0]])]  # before RL the arms are alike
        means += [curves.mean([cost.late(x) for x in of_arm]) for of_arm in of_arms]
        lines.append([family, *(f"{x.text()}{_seeds(x.count)}" for x in means)])
    _show(["", "before RL", *runs], lines)


def passed(table: str, group: str = GROUP, baseline: str = "uniform") -> None:
    """Prints the controls of an arena."""
    runs = _read(table)[group]
    compared = _compared(table, baseline).groups[group]
    found = controls.check(compared, baseline, runs[baseline])
    rows = [(x.name, x.asked, x.found, "yes" if x.passed else "no") for x in found]
    _show(["control", "asked", "found", "passed"], rows)


def spent(table: str, arms: str, columns: Sequence[str], group: str = GROUP) -> None:
    """Prints what each arm has cost; columns are headings of `cost.COSTS`."""
    compared = _compared(table, "uniform").groups[group]
    head, rows = comparison.costs({arm: compared[arm] for arm in arms.split()}, "uniform")
    places = [head.index(name) for name in columns]
    _show(["", *columns], [[row[0], *(row[i] for i in places)] for row in rows])


def known(table: str, arms: str, group: str = GROUP) -> None:
    """Prints what arms knew of the pass rates before they asked."""
    of_arms = {arm: _read(table)[group][arm] for arm in arms.split()}
    _show(*foresight.table(of_arms))


def _show(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    print(f"\n{tables.markdown(head, rows)}\n")  # a table that touches a comment is no table


_records = functools.cache(records.read)


@functools.cache
def _read(table: str) -> records.Groups:
    read = []
    for part in table.split("+"):
        name, _, ending = part.partition("*")
        groups = _records(RESULTS / f"{name}.parquet")
        read.append({x: {arm + ending: y for arm, y in of.items()} for x, of in groups.items()})
    return functools.reduce(records.joined, read)


@functools.cache
def _compared(table: str, baseline: str) -> Comparison:
    return comparison.compare(_read(table), baseline=baseline)


def _column(text: str, baseline: str) -> tuple[Mapping[str, Arm], str]:
    """Returns the arms of a column, and the quantity that it shows."""
    table, group, quantity, *_ = [*text.split(":"), "", ""]
    quantity, allowed = quantity or QUANTITY, dict.fromkeys((*FORMS, *DIFFERENCES))
    if quantity not in allowed:
        raise ValueError(f"{text}: no quantity {quantity!r}, use one of {', '.join(allowed)}")
    return _compared(table, baseline).groups[group or GROUP], quantity


def _cell(arm: Arm, quantity: str, is_baseline: bool) -> str:
    if quantity in comparison.REACH:
        value = comparison.cell(arm, quantity, FORMS[quantity])
        return "" if value == "-" else value
    if quantity not in DIFFERENCES:
        mean = arm.of_peak if quantity == "of_peak" else arm.means[quantity]
        return f"{mean.text(FORMS[quantity])}{_seeds(mean.count)}" if mean.count else ""
    if is_baseline:
        return f"{arm.means['late'].text()}{_seeds(len(arm.seeds))}"
    difference = arm.equal[DIFFERENCES[quantity]]
    return f"{difference.text(sign=True)}{_seeds(difference.count)}" if difference.count else ""


def _seeds(count: int) -> str:
    return "" if count == USUAL else f" ({count})"


if __name__ == "__main__":
    main()
