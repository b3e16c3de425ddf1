"""Writes one page of a run, or of several runs in the same charts: open it in a browser.

    python -m experiments.report --workdir=runs/tiny_gspo                     # report.html
    python -m experiments.report --workdir=runs/a --compare runs/b runs/c     # comparison.html

The file contains everything, including pictures and charts, and needs neither server nor network. An
incomplete run is shown as far as possible; the page says what is missing. Pictures come from the run
directory or from local data: nothing is downloaded.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from experiments import errors
from vade_jax import report


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the page that the command line asks for."""
    parser = argparse.ArgumentParser("experiments.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--workdir", type=os.path.expanduser, required=True, help="of a run")
    parser.add_argument(
        "--compare", type=os.path.expanduser, nargs="+", action="extend", default=[]
    )
    args = parser.parse_args(arguments)
    with errors.user_errors():
        path = report.write(args.workdir, args.compare)
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"  # making a page must download nothing
    main(sys.argv[1:])
