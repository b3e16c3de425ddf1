r"""Builds a data set from published ones, and finds the questions that a benchmark asks too.

    python -m experiments.build_data --config=configs/vade_9k.py --source=DIR --target=DIR \
        --checkpoint=DIR
    python -m experiments.build_data --config=configs/vade_9k.py --target=DIR --audit \
        --config.benchmarks.mathvista=testmini.parquet

TARGET holds train.arrow and validation.arrow, index.json (uid, subset, domain, kind, hash, tokens and patches
of every question), and report/, which lists what was rejected and why. `--config.data.train=TARGET` trains on
it. The same files and seed give the same bytes. TARGET appears only when all of it is written; a build that
was stopped leaves TARGET.tmp, which the next build replaces.
"""

import contextlib
import dataclasses
import pathlib
import sys
from collections.abc import Iterator

from absl import flags
from ml_collections import ConfigDict

from experiments import cli, errors, paths
from experiments.evals import benchmarks
from experiments.vade_9k import audit, build
from experiments.vade_9k.settings import Build


@contextlib.contextmanager
def _stops(target: pathlib.Path) -> Iterator[None]:
    """Turns Ctrl-C into one line and an exit."""
    try:
        yield
    except KeyboardInterrupt:
        there = "is whole" if target.exists() else "was not made"
        sys.exit(f"error: stopped, {target} {there}")


def main(c: ConfigDict, _: str) -> None:
    """Builds the data, and audits them if asked to; with --audit an existing TARGET is only audited."""
    target = pathlib.Path(TARGET.value)
    with errors.user_errors(), _stops(target):
        settings = Build.from_dict(c.to_dict())
        for name, flag in (("source", SOURCE), ("checkpoint", CHECKPOINT)):
            if flag.value:
                settings = dataclasses.replace(settings, **{name: flag.value})
        if AUDIT.value:
            audit.check(settings.benchmarks)
        if not (AUDIT.value and target.exists()):
            for name in ("source", "checkpoint"):
                if not getattr(settings, name):
                    raise ValueError(f"--{name} is missing: give its directory")
            build.build(settings, target)
            print(f"{(target / 'report' / 'report.md').read_text()}\nin {target}")
        if AUDIT.value:
            print(audit.audit(target, settings.benchmarks, benchmarks.BENCHMARKS))


if __name__ == "__main__":
    SOURCE = paths.define("source", "", "Directory of the published files.")
    TARGET = paths.define("target", None, "A new directory.", required=True)
    CHECKPOINT = paths.define(
        "checkpoint", "", "A Hugging Face directory: its tokenizer and template."
    )
    AUDIT = flags.DEFINE_bool("audit", False, "Compare with the benchmarks present.")
    cli.run(main)
