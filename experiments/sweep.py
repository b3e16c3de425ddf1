r"""Selectors against each other on equal terms: many runs, then tables and figures over seeds.

    python -m experiments.sweep --config=configs/tiny_table1.py --workdir=runs/table1 \
        --config.arms=vade,vanilla --config.seeds=0,1,2 --parallel=2

A run lies in {workdir}/{data}/{loss}/{arm}_seed{seed}, what it printed in a .log beside it. A finished
one is reused, a stopped one resumed, and one that fails does not keep the others from going on.
Runs of a seed share their warm start. `--report_only` makes the tables of what is there. On an
accelerator leave --parallel at 1: cores are shared out, devices are not.
"""

import os
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence

import tqdm
from absl import flags
from ml_collections import ConfigDict

from experiments import cli, errors
from experiments.sweeps import plan, schedule
from vade_jax.report import arm_figures, comparison, figures, selection, sweep_figures
from vade_jax.store import metrics

PROGRAMS = {
    name: (sys.executable, "-m", f"experiments.{name}")
    for name in ("supervise", "train")
}
PARALLEL = flags.DEFINE_integer(
    "parallel", 1, "Runs at a time; they share the cores.", lower_bound=1
)
REPORT_ONLY = flags.DEFINE_bool("report_only", False, "Run nothing.")


def main(c: ConfigDict, workdir: str) -> None:
    """Makes the runs that are missing, then compares all that are finished."""
    with errors.user_errors():
        runs = plan.runs(c, workdir)
    failed, stopped = [], False
    if not REPORT_ONLY.value:
        failed, stopped = make(runs, PARALLEL.value)
    finished = [run for run in runs if run.is_finished()]
    if finished and not stopped:
        report(by_group(finished), os.path.join(workdir, c.name), baseline=c.baseline)
    print(f"{len(finished)} of {len(runs)} runs are finished")
    for ended in failed:
        print(
            f"error: {ended.job.name} ended with exit code {ended.code}: {ended.job.log}"
        )
        print(f"    {ended.reason()}")
    if stopped:
        print("stopped: the same command goes on from here")
    sys.exit(1 if failed else 130 if stopped else 0)


def make(runs: Sequence[plan.Run], parallel: int) -> tuple[list[schedule.Ended], bool]:
    """Runs what is missing; returns what failed, and whether it was asked to stop."""
    missing = [run for run in runs if not run.is_finished()]
    print(f"{len(runs)} runs, {len(runs) - len(missing)} of them finished before")
    with schedule.Pool(parallel) as pool:
        failed = _follow(pool, warm_starts(missing), "warm starts")
        without = {ended.job.name for ended in failed}
        jobs = {
            _job(run, "train", run.name, run.log): run
            for run in missing
            if _warm_name(run) not in without
        }
        failed += _follow(
            pool, jobs, "runs", {job.name: run for job, run in jobs.items()}
        )
        return failed, pool.stopped


def warm_starts(runs: Sequence[plan.Run]) -> list[schedule.Job]:
    """Returns what makes the missing warm starts, each in the directory of a run that needs it."""
    jobs = {}
    for run in runs:
        start = run.config.warm_start
        complete = os.path.exists(os.path.join(start.directory, "config.json"))
        if start.num_steps and not complete and run.seed not in jobs:
            name = _warm_name(run)
            log = start.directory + ".log"
            jobs[run.seed] = _job(run, "supervise", name, log)
    return list(jobs.values())


def by_group(runs: Iterable[plan.Run]) -> dict[str, dict[str, list[str]]]:
    """Returns the run directories by data/loss and arm."""
    groups = {}
    for run in runs:
        arms = groups.setdefault(run.group, {})
        arms.setdefault(run.arm, []).append(run.directory)
    return groups


def report(
    groups: Mapping[str, Mapping[str, Sequence[str]]],
    directory: str,
    *,
    baseline: str = "vanilla",
) -> None:
    """Writes tables (table.md, table.json, selection.md) and figures, and prints the first.

    Where there is an arm "vade", also how well its posterior foretells the effective ratio.

    Args:
        groups: run directories by data/loss, then arm; any, the seeds are read from them.
        directory: where to.
        baseline: the arm that the others are held against.
    """
    folder = pathlib.Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    compared = comparison.compare(groups, baseline=baseline)
    comparison.write(compared, folder)
    where = [f"## {name}\n\n{selection.table(arms)}\n" for name, arms in groups.items()]
    (folder / "selection.md").write_text("\n".join(where))
    sweep_figures.draw(groups, folder)
    arm_figures.draw(compared, folder)
    own = [w for arms in groups.values() for w in arms.get("vade", ())]
    if predicting := [w for w in own if figures.has_predictions(w)]:
        figures.calibration(predicting, folder / "calibration.png")
    print(comparison.markdown(compared))
    print(f"tables and figures are in {folder}")


def _follow(pool, jobs, what, runs=None):
    """Shows progress; returns what failed."""
    failed, jobs = [], list(jobs)
    with tqdm.tqdm(total=len(jobs), desc=what, unit=" runs", smoothing=0.1) as bar:
        for ended in pool.run(jobs):
            bar.update()
            if ended.code:
                failed += [] if pool.stopped else [ended]
                bar.write(f"{ended.job.name}: exit code {ended.code}, {ended.job.log}")
            elif ended.code == 0:
                bar.write(_line(ended, (runs or {}).get(ended.job.name)))
    return failed


def _line(ended, run):
    text = f"{ended.job.name}: {ended.seconds:.0f} s"
    if run is None:
        return text
    if not run.is_finished():
        return f"{text}, stopped before its end"
    scores = metrics.validation(metrics.read(run.directory))[1]
    return f"{text}, validation {scores[-1]:.3f}" if len(scores) else text


def _job(run, program, name, log):
    """Writes the config of a run beside its directory; returns what runs it from there."""
    path = pathlib.Path(run.directory + ".json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(run.config.to_json_best_effort(indent=2) + "\n")
    command = [
        *PROGRAMS[program],
        f"--config=configs/from_json.py:{path}",
        f"--workdir={run.directory}",
    ]
    return schedule.Job(name, tuple(command), log)


def _warm_name(run):
    return f"warm start of seed {run.seed}"


if __name__ == "__main__":
    cli.run(main)
