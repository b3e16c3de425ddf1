"""Writes one page of a run, of several runs in the same charts, or of a sweep: open it in a browser.

    python -m experiments.report --workdir=runs/tiny_gspo                     # report.html
    python -m experiments.report --workdir=runs/a --compare runs/b runs/c     # comparison.html
    python -m experiments.report --workdir=runs/table1                        # a sweep's: sweep.html

The file contains everything, pictures and charts included, and needs no server and no network. A run that was
cut short or lost files is shown as far as possible; the page says what is missing. Pictures come from the run
directory or from its data if they are on this machine: nothing is downloaded.
"""

import argparse
import json
import os
import pathlib
import sys
from collections.abc import Sequence

from experiments import errors, paths, results
from experiments.arenas import sweep_page
from vade_jax import report


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the page that the command line asks for."""
    parser = argparse.ArgumentParser("experiments.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--workdir", type=paths.path, required=True, help="of a run or of a sweep")
    parser.add_argument("--compare", type=paths.path, nargs="+", action="extend", default=[])
    given = parser.parse_args(arguments)
    with errors.user_errors():
        if found := sorted(pathlib.Path(given.workdir).glob("*/records.parquet")):
            if given.compare:
                raise ValueError("--compare: is of runs, and --workdir is of a sweep")
            pages = [of_sweep(table) for table in found]
        else:
            pages = [report.write(given.workdir, given.compare)]
    for path in pages:
        print(f"{path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")


def of_sweep(table: pathlib.Path) -> pathlib.Path:
    """Makes the tables, figures and page of a sweep again from the table of its runs; returns the page."""
    groups = results.read(str(table))
    compared = table.with_name("table.json")
    baseline = "uniform"
    if compared.exists():
        try:
            baseline = json.loads(compared.read_text())["baseline"]
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{compared} is damaged ({error}): experiments.results writes it again"
            ) from error
    results.check_baseline(groups, baseline)
    results.write(groups, str(table.parent), baseline)
    return table.with_name(sweep_page.FILE)


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"  # making a page must download nothing
    main(sys.argv[1:])
