r"""Builds a data set from published ones, without questions that are also in a benchmark.

    python -m experiments.build_data --config=configs/vade_9k.py --source=DIR --target=DIR \
        --checkpoint=DIR --config.benchmarks.mathvista=testmini.parquet

TARGET holds train.arrow and validation.arrow, index.json (uid, subset, domain, kind, hash, tokens and patches
of every question), and report/, which lists what was rejected and why. `--config.data.train=TARGET` trains on
it. The same files and seed give the same bytes. TARGET appears only when it is complete; a stopped build
leaves TARGET.tmp, which the next build replaces.
"""

import dataclasses
import pathlib

from absl import flags
from ml_collections import ConfigDict

from experiments import cli, errors
from experiments.vade_9k import build
from experiments.vade_9k.settings import Build


def main(c: ConfigDict, _: str) -> None:
    """Builds the data, and prints the report."""
    target = pathlib.Path(TARGET.value)
    with errors.user_errors():
        settings = Build.from_dict(c.to_dict())
        for name, flag in (("source", SOURCE), ("checkpoint", CHECKPOINT)):
            if flag.value:
                settings = dataclasses.replace(settings, **{name: flag.value})
            if not getattr(settings, name):
                raise ValueError(f"--{name} is missing: give its directory")
        for name, path in settings.benchmarks.items():
            if path and not pathlib.Path(path).exists():
                raise ValueError(f"benchmarks.{name}={path} does not exist")
        build.build(settings, target)
        print(f"{(target / 'report' / 'report.md').read_text()}\nin {target}")


if __name__ == "__main__":
    SOURCE = flags.DEFINE_string("source", "", "Directory of the published files.")
    TARGET = flags.DEFINE_string("target", None, "A new directory.", required=True)
    CHECKPOINT = flags.DEFINE_string(
        "checkpoint", "", "A Hugging Face directory: its tokenizer and template."
    )
    cli.run(main)
