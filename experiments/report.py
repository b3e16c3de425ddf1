"""One page of a run, or of several over each other: open report.html in a browser.

    python -m experiments.report --workdir=runs/tiny_gspo
    python -m experiments.report --workdir=runs/a --compare runs/b runs/c     # comparison.html

The file holds everything, pictures and charts too, and needs no server and no network. A run that was
cut short or lost some of its files is shown as far as it goes; the page says what is missing. Pictures come
from the run directory or from its data, as far as they are here: nothing is downloaded.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from experiments import errors, paths
from vade_jax import report


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the page that the command line asks for."""
    parser = argparse.ArgumentParser("experiments.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--workdir", type=paths.path, required=True, help="a run directory")
    parser.add_argument("--compare", type=paths.path, nargs="+", action="extend", default=[])
    given = parser.parse_args(arguments)
    with errors.user_errors():
        path = report.write(given.workdir, given.compare)
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"  # a page downloads nothing: pictures are of what is here
    main(sys.argv[1:])
