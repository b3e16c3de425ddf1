r"""The tables and figures of a sweep once more, from the records of its runs.

    python -m experiments.results --records docs/results/frontier --workdir=runs/frontier_again

Where several sweeps are given that differ in the size of a step or of the pool, a map of where selection pays
is drawn as well. A sweep leaves a record of every finished run in {workdir}/{name}/records, some kilobytes each.
`--arms vanilla vade kalman` leaves the others out.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence

from experiments import errors
from vade_jax import atomic, fields
from vade_jax.report import comparison, controls, figures, records


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes what the command line asks for."""
    parser = argparse.ArgumentParser("experiments.results", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--records", required=True, nargs="+", help="folders of records")
    parser.add_argument("--workdir", required=True, help="where tables and figures go")
    parser.add_argument("--baseline", default="vanilla", help="the arm to compare with")
    parser.add_argument("--arms", nargs="+", help="some of the arms; default: all")
    given = parser.parse_args(arguments)
    with errors.user_errors():
        groups = read(*given.records)
        if given.arms:
            groups = only(groups, given.arms)
        check_baseline(groups, given.baseline)
    first = lambda arm: (arm != given.baseline, arm)
    groups = {
        name: {arm: arms[arm] for arm in sorted(arms, key=first)} for name, arms in groups.items()
    }
    with errors.user_errors((OSError,)):
        write(groups, given.workdir, given.baseline)
    print(f"tables and figures are in {given.workdir}")


def read(*folders: str) -> comparison.Groups:
    """Returns the runs recorded as {folder}/{data}/{loss}/{arm}_seed{seed}.json.

    Raises:
        ValueError: a folder has none, one is no record, or two are of one run.
    """
    groups = {}
    for folder in folders:
        paths = sorted(pathlib.Path(folder).rglob("*_seed*.json"))
        if not paths:
            raise ValueError(f"--records {folder}: no ARM_seedN.json in it or below")
        for path in paths:
            name = str(path.parent.relative_to(folder))
            arm = path.stem.rpartition("_seed")[0]
            found = groups.setdefault(name, {}).setdefault(arm, [])
            run = records.read(path)
            if same := [one.name for one in found if one.seed == run.seed]:
                raise ValueError(
                    f"--records: {same[0]} and {path} are both of {name}/{arm} with seed {run.seed}: "
                    "give one of them"
                )
            found.append(run)
    return groups


def only(groups: comparison.Groups, arms: Sequence[str]) -> comparison.Groups:
    """Returns the groups with these arms alone.

    Raises:
        ValueError: no group has one of them.
    """
    for arm in arms:
        _check_known("--arms", arm, groups)
    return {
        name: {arm: runs for arm, runs in of_group.items() if arm in arms}
        for name, of_group in groups.items()
    }


def check_baseline(groups: comparison.Groups, baseline: str) -> None:
    """Raises ValueError, with the nearest arm, if no data/loss has `baseline`."""
    _check_known("--baseline", baseline, groups)


def _check_known(flag: str, arm: str, groups: comparison.Groups) -> None:
    known = {arm: None for of_group in groups.values() for arm in of_group}
    if arm not in known:
        hint = fields.did_you_mean(arm, known)
        raise ValueError(f"{flag}={arm}: {hint}there are {', '.join(known)}")


def write(groups: comparison.Groups, directory: str, baseline: str) -> None:
    """Writes tables, controls and figures of runs by data/loss and arm, and prints the first two."""
    compared = comparison.write(groups, directory, baseline=baseline)
    figures.draw_sweep(groups, compared, directory)
    print(comparison.markdown(compared))
    checked = {
        name: controls.check(arms, baseline, groups[name][baseline])
        for name, arms in compared.groups.items()
        if {baseline, controls.DOSE, controls.ORACLE} <= arms.keys()
    }
    if checked:
        text = controls.markdown(checked)
        atomic.write_text(os.path.join(directory, "controls.md"), text)
        print(text)


if __name__ == "__main__":
    main(sys.argv[1:])
