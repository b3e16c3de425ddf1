r"""Makes the tables and figures of a sweep again, from the table of its runs.

    python -m experiments.results --records docs/results/frontier.parquet --workdir=runs/frontier_again

Given several sweeps that differ in the size of a step or of the pool, it also draws a map of where selection
pays. A sweep writes {workdir}/{name}/records.parquet, a kilobyte a run. `--arms uniform vade kalman` shows
only these arms, in this order. `--at tokens` compares two runs up to where both have sampled as many tokens;
`--at rollouts` and `--at seconds` do the same. `--across` treats each file as one arena (of a single file,
each data/loss) and prints one table of all arms in all arenas:

    python -m experiments.results --across --workdir=runs/arenas \
        --records docs/results/frontier.parquet docs/results/digits.parquet
"""

import argparse
import itertools
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
    records,
    sweep_page,
)
from vade_jax import atomic, fields, settings
from vade_jax.report import curves
from vade_jax.run import directory
from vade_jax.run.checks import place

# What the arms of one sweep may set.
_OF_AN_ARM = (
    "selector",
    "loss",
    "refill",
    "optimizer",
    "num_prompts",
    "num_rollouts",
    "budget",
    "measure",
)


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
    parser.add_argument("--across", action="store_true", help="each table is an arena of its own")
    parser.add_argument("--arms", nargs="+", help="some of the arms; default: all")
    given = parser.parse_args(arguments)
    with errors.user_errors():
        groups = apart(*given.records) if given.across else read(*given.records)
        if given.arms:
            groups = only(groups, given.arms)
        check_baseline(groups, given.baseline)
        check_recorded(groups, given.at)
        if given.across and all(set(arms) == {given.baseline} for arms in groups.values()):
            raise ValueError(f"--across: there is no arm beside the baseline {given.baseline}")
    rank = given.arms.index if given.arms else lambda arm: arm  # in this order, or by name
    first = lambda arm: (arm != given.baseline, rank(arm))
    groups = {
        name: {arm: arms[arm] for arm in sorted(arms, key=first)} for name, arms in groups.items()
    }
    with errors.user_errors((OSError,)):
        if given.across:
            write_across(groups, given.workdir, given.baseline, given.at)
        else:
            write(groups, given.workdir, given.baseline, given.at)
    print(f"tables and figures are in {given.workdir}")


def read(*paths: str) -> records.Groups:
    """Returns the runs of several tables by data/loss, then by arm.

    Tables of different jobs, say with larger steps, stay apart: their groups are called table/data/loss.

    Raises:
        ValueError: a file is not a table of runs, two files have the same run, or seeds of one arm have
            different settings.
    """
    tables = [records.read(path) for path in paths]
    if not all(_is_one_job(*pair) for pair in itertools.combinations(tables, 2)):
        return apart(*paths)
    groups: dict[str, dict[str, list[records.Recorded]]] = {}
    for table in tables:
        for name, arms in table.items():
            for arm, runs in arms.items():
                found = groups.setdefault(name, {}).setdefault(arm, [])
                for run in runs:
                    if same := [one.name for one in found if one.seed == run.seed]:
                        raise ValueError(
                            f"--records: {same[0]} and {run.name} are one run: give one of them"
                        )
                    if found:
                        _check_same_settings(found[0], run)
                    found.append(run)
    return groups


def _is_one_job(one: records.Groups, other: records.Groups) -> bool:
    """Returns whether runs of two tables can be compared: an arm of both has the same settings.

    Without such an arm, they have the same data, policy and steps.
    """
    for name in one.keys() & other.keys():
        arms = sorted(one[name].keys() & other[name].keys())
        if arms:
            pair, ignored = (one[name][arms[0]][0], other[name][arms[0]][0]), ()
        else:
            pair, ignored = [next(iter(x[name].values()))[0] for x in (one, other)], _OF_AN_ARM
        if _differing(*pair, ignored):
            return False
    return True


def _check_same_settings(one: records.Recorded, other: records.Recorded) -> None:
    if differing := _differing(one, other):
        raise ValueError(
            f"{one.name} and {other.name} are seeds of one arm with other settings ({differing[0]}): "
            "leave one of them out"
        )


def _differing(
    one: records.Recorded, other: records.Recorded, ignored: Sequence[str] = ()
) -> list[str]:
    """Returns the settings in which two runs differ, but for the seed and where they ran."""
    defaults = settings.Run()
    here = place.filled(other.config, defaults)
    ignored = ("seed", *directory.MAY_DIFFER, *ignored)
    return place.differing(one.config, here, ignored, defaults)


def apart(*paths: str) -> records.Groups:
    """Returns the runs of several tables by table/data/loss, or by data/loss if there is only one table.

    Raises:
        ValueError: as in `read`; or two tables have the same name.
    """
    by_name = {pathlib.Path(path).stem: path for path in paths}
    if len(by_name) < len(paths):
        raise ValueError(
            f"--records {' '.join(paths)}: --across takes an arena by the name of its table, and two "
            "have the same: rename one"
        )
    return {
        f"{arena}/{name}" if len(paths) > 1 else name: arms
        for arena, path in by_name.items()
        for name, arms in read(path).items()
    }


def only(groups: records.Groups, arms: Sequence[str]) -> records.Groups:
    """Returns the groups that have any of these arms, with only these.

    Raises:
        ValueError: one of the arms is in no group.
    """
    for arm in arms:
        _check_known("--arms", arm, groups)
    found = {
        name: {arm: runs for arm, runs in of_group.items() if arm in arms}
        for name, of_group in groups.items()
    }
    return {name: of_group for name, of_group in found.items() if of_group}


def check_baseline(groups: records.Groups, baseline: str) -> None:
    """Raises ValueError if no data/loss has `baseline`; the message names the nearest arm."""
    _check_known("--baseline", baseline, groups)


def check_recorded(groups: records.Groups, at: str) -> None:
    """Raises ValueError if a run has not recorded what `at` counts; the message names the run."""
    for of_group in groups.values():
        for runs in of_group.values():
            for run in runs:
                if at != "steps" and at not in curves.totals(run.records):
                    raise ValueError(
                        f"--at {at}: {run.name} has not recorded its {curves.AXES[at]}: leave it out with "
                        f"--arms, or compare at another one of {', '.join(cost.EQUAL)}"
                    )


def _check_known(flag: str, arm: str, groups: records.Groups) -> None:
    known = {arm: None for of_group in groups.values() for arm in of_group}
    fields.check_word(flag, arm, known)


def write(groups: records.Groups, workdir: str, baseline: str, at: str = "steps") -> None:
    """Writes tables, controls, figures and page of runs by data/loss and arm; prints tables and controls."""
    for name in ("controls.md", "foresight.md", *figures.OF_SOME):  # may be an earlier table's
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
