r"""Selectors against each other on equal rollouts: one table and one figure.

    python -m experiments.sweep --config=configs/tiny_gspo.py --workdir=runs/compare \
        --selectors=vade,uniform --seeds=0,1,2

Runs of the same seed share their warm start and data. A run that is there is resumed or reused, so
an interrupted sweep goes on where it was.
"""

import os
import pathlib
import subprocess
import sys

from absl import app, flags

from experiments import errors
from vade_jax.store import figures, selection, summary

CONFIG = flags.DEFINE_string(
    "config", None, "A config file, without arguments.", required=True
)
WORKDIR = flags.DEFINE_string("workdir", None, "Where the runs go.", required=True)
SELECTORS = flags.DEFINE_list(
    "selectors", ["vade", "uniform"], "Arguments of the config."
)
SEEDS = flags.DEFINE_list(
    "seeds", ["0", "1", "2"], "Seeds of data, model and rollouts."
)
EXTRA = flags.DEFINE_multi_string(
    "set", [], "Passed on, such as --set=config.num_steps=20."
)


def main(_) -> None:
    """Runs what is missing, then compares."""
    with errors.user_errors():
        if not os.path.exists(CONFIG.value):
            raise FileNotFoundError(f"--config={CONFIG.value}: no such file")
    runs = {
        selector: [train(selector, seed) for seed in SEEDS.value]
        for selector in SELECTORS.value
    }
    report(runs, WORKDIR.value)


def train(selector: str, seed: str) -> str:
    """Runs one job in a process of its own and returns its workdir."""
    workdir = os.path.join(WORKDIR.value, f"{selector}_seed{seed}")
    shared = os.path.join(WORKDIR.value, f"warm_start_seed{seed}")
    command = [
        *(sys.executable, "-m", "experiments.train"),
        f"--config={CONFIG.value}:{selector},seed={seed}",
        f"--workdir={workdir}",
        f"--config.warm_start.directory={shared}",
        *(f"--{setting}" for setting in EXTRA.value),
    ]
    print(f"== {selector}, seed {seed}", flush=True)
    if code := subprocess.run(command, check=False).returncode:
        sys.exit(f"error: {selector}, seed {seed} ended with exit code {code}")
    return workdir


def report(runs: dict[str, list[str]], directory: str) -> None:
    """Writes compare.md, selection.md, compare.png and calibration.png, and prints the tables."""
    directory = pathlib.Path(directory)
    table = summary.compare(runs)
    shares = selection.table(runs)
    (directory / "compare.md").write_text(table + "\n")
    (directory / "selection.md").write_text(shares + "\n")
    figures.compare(runs, directory / "compare.png")
    figures.calibration(
        [w for dirs in runs.values() for w in dirs], directory / "calibration.png"
    )
    print(table, shares, sep="\n\n")


if __name__ == "__main__":
    app.run(main)
