"""One page of a run, or of several over each other: open report.html in a browser.

    python -m experiments.report --workdir=runs/tiny_gspo
    python -m experiments.report --workdir=runs/a --compare runs/b runs/c     # comparison.html

The file holds everything, pictures and charts too, and needs no server and no network. A run that was
cut short or lost some of its files is shown as far as it goes; the page says what is missing.
"""

import argparse
import importlib.metadata
import json
import pathlib
import platform
import sys
from collections.abc import Sequence

from experiments import errors, pictures
from vade_jax import atomic
from vade_jax.store import report
from vade_jax.types import Item

PACKAGES = ("vade_jax", "jax", "jaxlib", "flax", "optax", "numpy", "vllm")


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes the page that the command line asks for."""
    parser = argparse.ArgumentParser("experiments.report", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--workdir", required=True, help="a run directory")
    parser.add_argument("--compare", nargs="+", action="extend", default=[])
    given = parser.parse_args(arguments)
    with errors.user_errors():
        path = report.write(
            given.workdir,
            given.compare,
            find=lambda run: pictures.of_config(run.config),
        )
    print(f"{path} ({path.stat().st_size / 1e6:.1f} MB): open it in a browser")


def at_end(workdir: str, items: Sequence[Item]) -> pathlib.Path:
    """Writes the page of a run that has just ended, with its versions and pictures beside it.

    Args:
        workdir: of the run.
        items: the source of its training data, by row.
    """
    text = json.dumps(versions(), indent=2) + "\n"
    atomic.write_text(pathlib.Path(workdir) / "versions.json", text)
    find = pictures.finder(items)
    return report.write(workdir, find=lambda _: find, keep_pictures=True)


def versions() -> dict[str, str]:
    """Returns the versions that a run depends on, of what is installed."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
