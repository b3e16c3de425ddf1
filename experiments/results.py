r"""Makes the tables and figures of a sweep again, from the table of its runs.

    python -m experiments.results --records docs/results/frontier.parquet --workdir=runs/frontier_again

A sweep writes {workdir}/{name}/records.parquet, a kilobyte a run. Of several tables the groups stay apart,
and where they differ in the size of a step or of the pool, a map shows where selection pays. `--arms uniform
vade kalman` shows only these arms, in this order. `--at tokens` compares two runs up to where both have
sampled as many tokens; `--at rollouts` and `--at seconds` do the same. `--across` prints one table of all
arms in all groups, the arenas:

    python -m experiments.results --across --workdir=runs/arenas \
        --records docs/results/frontier.parquet docs/results/digits.parquet
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence

from experiments import errors, paths
from experiments.arenas import (
    across,
    comparison,
    controls,
    cost,
    figures,
    foresight,
    maps,
    records,
    sweep_page,
)
from vade_jax import atomic, fields, settings
from vade_jax.report import curves
from vade_jax.run import directory
from vade_jax.run.checks import place


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes what the command line asks for."""
    parser = argparse.ArgumentParser("experiments.results", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--records", type=paths.path, required=True, nargs="+", help="tables of runs"
    )
    parser.add_argument(
        "--workdir", type=paths.path, required=True, help="where tables and figures go"
    )
    parser.add_argument("--baseline", default="uniform", help="the arm to compare with")
    parser.add_argument(
        "--at", choices=cost.EQUAL, default="steps", help="what two runs have spent alike"
    )
    parser.add_argument("--across", action="store_true", help="one table of all arms and groups")
    parser.add_argument("--arms", nargs="+", help="some of the arms; default: all")
    asked = parser.parse_args(arguments)
    with errors.user_errors():
        groups = read(*asked.records)
        groups = only(groups, asked.arms) if asked.arms else groups
        check(groups, asked.baseline, asked.at)
        if asked.across and all(set(arms) == {asked.baseline} for arms in groups.values()):
            raise ValueError(f"--across: there is no arm beside the baseline {asked.baseline}")
    rank = asked.arms.index if asked.arms else lambda arm: arm  # in this order, or by name
    first = lambda arm: (arm != asked.baseline, rank(arm))
    groups = {
        name: {arm: arms[arm] for arm in sorted(arms, key=first)} for name, arms in groups.items()
    }
    with errors.user_errors((OSError,)):
        writes = write_across if asked.across else write
        writes(groups, asked.workdir, asked.baseline, asked.at)
    print(f"tables and figures are in {asked.workdir}")


def read(*paths: str) -> records.Groups:
    """Returns the runs of several tables by table/data/loss, or by data/loss if there is only one table.

    Raises:
        ValueError: a file is not a table of runs, two tables have the same name, or seeds of one arm have
            different settings.
    """
    by_name = {pathlib.Path(path).stem: path for path in paths}
    if len(by_name) < len(paths):
        raise ValueError(
            f"--records {' '.join(paths)}: groups are told apart by the name of their table, and two have "
            "the same: rename one"
        )
    groups = {
        f"{table}/{name}" if len(paths) > 1 else name: arms
        for table, path in by_name.items()
        for name, arms in records.read(path).items()
    }
    for first, *others in (runs for arms in groups.values() for runs in arms.values()):
        for other in others:
            _check_same_settings(first, other)
    return groups


def _check_same_settings(one: records.Recorded, other: records.Recorded) -> None:
    defaults, ignored = settings.Run(), ("seed", *directory.MAY_DIFFER)
    here = place.filled(other.config, defaults)
    if differing := place.differing(one.config, here, ignored, defaults):
        raise ValueError(
            f"{one.name} and {other.name} are seeds of one arm with other settings ({differing[0]}): "
            "leave one of them out"
        )


def only(groups: records.Groups, arms: Sequence[str]) -> records.Groups:
    """Returns the groups that have any of these arms, with only these.

    Raises:
        ValueError: one of the arms is in no group.
    """
    for arm in arms:
        _check_known("--arms", arm, groups)
    chosen = {
        name: {arm: runs for arm, runs in of_group.items() if arm in arms}
        for name, of_group in groups.items()
    }
    return {name: of_group for name, of_group in chosen.items() if of_group}


def check(groups: records.Groups, baseline: str, at: str = "steps") -> None:
    """Raises ValueError if no group has `baseline`, or a run has not recorded what `at` counts."""
    _check_known("--baseline", baseline, groups)
    every = [run for arms in groups.values() for runs in arms.values() for run in runs]
    for run in every if at != "steps" else ():
        if at not in curves.totals(run.records):
            raise ValueError(
                f"--at {at}: {run.name} has not recorded its {curves.AXES[at]}: leave it out with "
                f"--arms, or compare at another one of {', '.join(cost.EQUAL)}"
            )


def _check_known(flag: str, arm: str, groups: records.Groups) -> None:
    fields.check_word(flag, arm, dict.fromkeys(arm for arms in groups.values() for arm in arms))


def write(groups: records.Groups, workdir: str, baseline: str, at: str = "steps") -> None:
    """Writes tables, controls, figures and page of runs by data/loss and arm; prints tables and controls."""
    for name in ("controls.md", "foresight.md", *maps.FIGURES):  # may be an earlier table's
        pathlib.Path(workdir, name).unlink(missing_ok=True)
    compared = comparison.write(groups, workdir, baseline=baseline, at=at)
    figures.draw_sweep(groups, compared, workdir)
    print(comparison.markdown(compared))
    checked = {
        name: controls.check(arms, baseline, groups[name][baseline])
        for name, arms in compared.groups.items()
        if baseline in arms and {controls.DOSE, controls.ORACLE} & arms.keys()
    }
    if checked:
        text = controls.markdown(checked)
        atomic.write_text(os.path.join(workdir, "controls.md"), text)
        print(text)
    if known := foresight.markdown(groups):
        atomic.write_text(os.path.join(workdir, "foresight.md"), known + "\n")
        print(known)
    sweep_page.write(groups, compared, workdir, checked)


def write_across(groups: records.Groups, workdir: str, baseline: str, at: str) -> None:
    """Writes the table of all arms in all arenas and its figure; prints the table."""
    compared = comparison.compare(groups, baseline=baseline, at=at)
    across.draw(compared, os.path.join(workdir, "across.png"))
    text = across.markdown(compared)
    atomic.write_text(os.path.join(workdir, "across.md"), text + "\n")
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
