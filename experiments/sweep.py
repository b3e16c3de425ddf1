r"""Compares selectors on equal terms: makes many runs, then tables and curves over seeds.

    python -m experiments.sweep --config=configs/sweep.py --workdir=runs/table1 \
        --config.arms=vade,uniform --config.seeds=0,1,2 --parallel=2

A run is in {workdir}/{data}/{loss}/{arm}_seed{seed}, with its output in the .log next to this directory. A
finished run is reused, a stopped run is resumed, and a failed run does not stop the others. If the config has
lessons, experiments/supervise.py first makes the model that all runs of a seed start from. `--report_only`
makes the tables of the runs that are finished. On an accelerator leave --parallel at 1: runs get separate
cores, but not separate devices.
"""

import math
import os
import sys
from collections.abc import Mapping, Sequence

import tqdm
from absl import flags
from ml_collections import ConfigDict

from experiments import cli, errors, results
from experiments.arenas import records, sweep_page
from experiments.arenas.programs import Ended, Program, ProgramPool
from experiments.arenas.runs import Planned, PlannedRun, WarmStart, planned
from vade_jax import imports
from vade_jax.report import outcome
from vade_jax.run.directory import own
from vade_jax.store import metrics

COMMANDS = {name: (sys.executable, "-m", f"experiments.{name}") for name in ("supervise", "train")}
PARALLEL = flags.DEFINE_integer(
    "parallel", 1, "Runs at a time; they share the cores.", lower_bound=1
)
REPORT_ONLY = flags.DEFINE_bool("report_only", False, "Run nothing.")


def main(c: ConfigDict, workdir: str) -> None:
    """Makes the runs that are missing, then compares all finished runs."""
    with errors.user_errors():
        runs = planned(c, workdir)
        if not REPORT_ONLY.value:
            alone = own(workdir)
    baseline = imports.label(c.baseline)
    failed, stopped = [], False
    if not REPORT_ONLY.value:
        with alone:  # a second sweep here could change the settings of waiting runs
            failed, stopped = make(runs, PARALLEL.value)
    finished = [run for run in runs if run.is_finished()]
    if finished and not stopped:
        report(finished, os.path.join(workdir, c.name), baseline)
    print(f"{len(finished)} of {len(runs)} runs are finished")
    for ended in failed:
        program = ended.program
        print(f"error: {program.name} ended with exit code {ended.code}: {program.log}")
        print(f"    {ended.reason()}")
    if stopped:
        print("stopped: the same command continues")
    sys.exit(1 if failed else 130 if stopped else 0)


def make(runs: Sequence[PlannedRun], parallel: int) -> tuple[list[Ended], bool]:
    """Makes the missing runs; returns the programs that failed, and whether the sweep was asked to stop."""
    missing = {run.name: run for run in runs if not run.is_finished()}
    print(f"{len(runs)} runs, {len(runs) - len(missing)} of them finished before")
    # An existing warm start ends at once, or with an error if its settings differ.
    starts = {run.seed: warm_start(run.start) for run in missing.values() if run.start}
    with ProgramPool(parallel) as pool:
        failed = follow(pool, [*starts.values()], "warm starts", {})
        without = {ended.program for ended in failed}
        programs = [
            program("train", name, run, f"--workdir={run.directory}")
            for name, run in missing.items()
            if starts.get(run.seed) not in without
        ]
        failed += follow(pool, programs, "runs", missing)
        return failed, pool.stopped


def warm_start(start: WarmStart) -> Program:
    """Returns the program that makes the model of a seed."""
    name = f"warm start of seed {start.settings.seed}"
    lessons = [f"--lessons.{field}={value}" for field, value in start.lessons.to_dict().items()]
    return program("supervise", name, start, f"--directory={start.directory}", *lessons)


def program(command: str, name: str, planned: Planned, *arguments: str) -> Program:
    """Returns the program that runs one of `COMMANDS` with its own config."""
    config = f"--config={planned.write_config()}"
    return Program(name, (*COMMANDS[command], config, *arguments), planned.log)


def follow(
    pool: ProgramPool, programs: Sequence[Program], what: str, runs: Mapping[str, PlannedRun]
) -> list[Ended]:
    """Runs programs under a progress bar; returns those that failed.

    `runs` has the run of each program by name; a warm start has no run.
    """
    failed = []
    with tqdm.tqdm(total=len(programs), desc=what, unit=" runs", smoothing=0.1) as bar:
        for ended in pool.run(programs):
            bar.update()
            name = ended.program.name
            if ended.code:
                failed += [] if pool.stopped else [ended]
                bar.write(f"{name}: exit code {ended.code}, {ended.program.log}")
            elif ended.code == 0:
                text, run = f"{name}: {ended.seconds:.0f} s", runs.get(name)
                if run and not run.is_finished():
                    text += ", stopped before its end"
                elif run:
                    last = outcome.of_run(metrics.read(run.directory)).last
                    text += f", validation {last:.3f}" if math.isfinite(last) else ""
                bar.write(text)
    return failed


def report(finished: Sequence[PlannedRun], directory: str, baseline: str) -> None:
    """Writes records, tables and page of finished runs, and prints the tables."""
    directories = {}
    for run in finished:
        directories.setdefault(run.group, {}).setdefault(run.arm, []).append(run.directory)
    # The records are written first, as tables and page can be made from them. They keep arms of earlier
    # calls.
    path = os.path.join(directory, "records.parquet")
    with errors.user_errors():  # names a damaged file of a run
        groups = {
            name: {arm: list(map(records.of_directory, paths)) for arm, paths in arms.items()}
            for name, arms in directories.items()
        }
        earlier = records.read(path) if os.path.exists(path) else {}
    every = records.joined(earlier, groups)
    records.write(every, path)
    seeds = {run.seed for run in finished}
    groups = {
        name: {arm: [run for run in every[name][arm] if run.seed in seeds] for arm in arms}
        for name, arms in directories.items()
    }
    results.write(groups, directory, baseline)
    print(f"tables and records are in {directory}; open {sweep_page.FILE} there in a browser")


if __name__ == "__main__":
    cli.run(main)
