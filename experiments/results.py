r"""Makes the tables and the page of a sweep again, from the table of its runs.

    python -m experiments.results --records docs/results/frontier.parquet --workdir=runs/frontier_again

A sweep writes {workdir}/{name}/records.parquet.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from experiments import errors
from experiments.arenas import comparison, controls, records, sweep_page
from vade_jax import atomic, fields
from vade_jax.run import directory
from vade_jax.store import run_file


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes what the command line asks for."""
    parser = argparse.ArgumentParser("experiments.results", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--records", type=os.path.expanduser, required=True, help="a table of runs")
    parser.add_argument(
        "--workdir", type=os.path.expanduser, required=True, help="where tables and page go"
    )
    parser.add_argument("--baseline", default="uniform", help="the arm to compare with")
    asked = parser.parse_args(arguments)
    with errors.user_errors():
        groups = read(asked.records)
        check_known(asked.baseline, groups)
    first = lambda arm: (arm != asked.baseline, arm)
    groups = {
        name: {arm: arms[arm] for arm in sorted(arms, key=first)} for name, arms in groups.items()
    }
    with errors.user_errors((OSError,)):
        write(groups, asked.workdir, asked.baseline)
    print(f"tables and page are in {asked.workdir}")


def read(path: str) -> records.Groups:
    """Returns the runs of a table by data/loss, then by arm.

    Raises:
        ValueError: the file is not a table of runs, or seeds of one arm have different settings.
    """
    groups = records.read(path)
    ignored = ("seed", *directory.MAY_DIFFER)
    for first, *others in (runs for arms in groups.values() for runs in arms.values()):
        for other in others:
            if differing := run_file.differences(first.config, other.config, ignored):
                raise ValueError(
                    f"{first.name} and {other.name} are seeds of one arm with other settings "
                    f"({differing[0]}): leave one of them out"
                )
    return groups


def check_known(baseline: str, groups: records.Groups) -> None:
    """Raises ValueError if no group has the baseline."""
    known = dict.fromkeys(arm for arms in groups.values() for arm in arms)
    fields.check_word("--baseline", baseline, known)


def write(groups: records.Groups, workdir: str, baseline: str) -> None:
    """Writes the tables, those of controls included, and the page of runs; prints the tables."""
    compared = comparison.compare(groups, baseline=baseline)
    checked = {
        name: controls.check(arms, baseline, groups[name][baseline])
        for name, arms in compared.groups.items()
        if baseline in arms and arms.keys() & {*controls.ARMS}
    }
    text = f"{comparison.markdown(compared)}\n{controls.markdown(checked)}"
    atomic.write_text(os.path.join(workdir, "table.md"), text)
    print(text)
    sweep_page.write(groups, compared, workdir, checked)


if __name__ == "__main__":
    main(sys.argv[1:])
