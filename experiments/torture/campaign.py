"""Trials: a fault hits a run, the run is restarted until it ends, and its results are compared."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from experiments.arenas.programs import printed, started
from experiments.torture import faults
from experiments.torture.faults import Fault
from vade_jax.models.qwen import files
from vade_jax.store import metrics, rollout_log

EQUAL, NAMED, FAILED = "bit-equal", "damage named", "failed"
BUSY = "is in use by another run"  # in a run's error while children of a killed one still run
CLOCK = ("timing_s/", "perf/")  # metrics that differ between any two runs
POLL_S = 0.02


class Failed(Exception):  # noqa: N818 (says what happened)
    """A run did something that it must not do."""


class Reference(NamedTuple):
    """The run without a fault."""

    results: dict[str, Any]
    limit: float  # seconds after which a run counts as hanging


def finish(process: subprocess.Popen, limit: float) -> int:
    """Returns the exit code; a run that hangs has failed."""
    try:
        return process.wait(limit)
    except subprocess.TimeoutExpired:
        raise Failed(f"did not end within {limit:.0f} s") from None


def last_error(log: pathlib.Path) -> str:
    """Returns the last line of a run's output if it is an error, else ""."""
    last = printed(log)[-1:]
    return last[0] if last and last[0].startswith("error: ") else ""


def train(config: Sequence[str], compiled: pathlib.Path) -> list[str]:
    """Returns the command of a run; programs that it compiles are in the directory `compiled`."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(compiled))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
    # Little optimization: otherwise a tiny job would spend nearly all its time compiling.
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    return [sys.executable, "-m", "experiments.train", *config]


def reference(command: Sequence[str], workdir: pathlib.Path) -> Reference:
    """Runs the job without a fault.

    Raises:
        RuntimeError: it fails.
    """
    shutil.rmtree(workdir, ignore_errors=True)
    workdir.mkdir(parents=True)
    start = time.monotonic()
    log = workdir.with_suffix(".log")
    log.unlink(missing_ok=True)
    with started([*command, f"--workdir={workdir}"], log) as process:
        if process.wait():
            reason = last_error(log).removeprefix("error: ")
            raise RuntimeError(f"the job without a fault failed: {reason}")
    return Reference(results(workdir), limit=120 + 6 * (time.monotonic() - start))


def trial(
    command: Sequence[str], fault: Fault, known: Reference, root: pathlib.Path
) -> tuple[str, str]:
    """Makes one trial in `root`; returns its outcome and the reason. A failed trial leaves its directory."""
    shutil.rmtree(root, ignore_errors=True)
    workdir, log = root / "run", root.with_suffix(".log")
    root.mkdir(parents=True)
    try:
        with faults.small_disk(root) if fault.kind == faults.FULL else contextlib.nullcontext():
            workdir.mkdir()
            with started([*command, f"--workdir={workdir}"], log) as process:
                _hurt(process, fault, known, root, log)
            damaged = faults.damage(workdir, fault) if fault.kind == faults.FLIP else None
            outcome = _again(command, known, workdir, log, damaged)
    except Failed as error:
        return FAILED, str(error)
    shutil.rmtree(root)
    log.unlink()
    return outcome


def _hurt(process, fault: Fault, known: Reference, root: pathlib.Path, log: pathlib.Path) -> None:
    """Waits for the moment of a fault, causes it, and waits until the run has ended."""
    rng, deadline = fault.rng(), time.monotonic() + known.limit
    while process.poll() is None and not any(root.glob(faults.MOMENTS[fault.moment])):
        if time.monotonic() > deadline:
            raise Failed(f"did not come to {fault.moment!r}")
        time.sleep(POLL_S)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(fault.later)
    if fault.kind in (faults.KILL, faults.FLIP):
        if rng.random() < 0.5:  # else it is killed with all its children
            process.kill()
            process.wait()
        return
    if fault.kind == faults.FULL:
        filler = faults.fill(root, free=int(rng.integers(1 << 18)))
        if finish(process, known.limit) and not last_error(log):
            raise Failed(f"exit code {process.returncode} without one line of error")
        filler.unlink()
        return
    process.send_signal(signal.SIGTERM if fault.kind == faults.TERMINATE else signal.SIGINT)
    if fault.kind == faults.INTERRUPT:
        time.sleep(float(rng.random()))
        process.send_signal(signal.SIGINT)
    finish(process, known.limit)


def _again(command, known: Reference, workdir, log, damaged) -> tuple[str, str]:
    """Starts the run again until it ends well or names the damaged file, and judges its results."""
    deadline, line = time.monotonic() + known.limit, BUSY
    while BUSY in line and time.monotonic() < deadline:
        with started([*command, f"--workdir={workdir}"], log) as process:
            failed = finish(process, known.limit)
            line = (last_error(log) or "no line of error") if failed else ""
    try:
        if line:
            raise ValueError(line)
        left = results(workdir)
    except (ValueError, OSError) as error:  # or the library refuses to read a file, and says which
        if damaged is None:
            raise Failed(f"started again: {error}") from error
        inside = damaged.relative_to(workdir)  # the file or a directory above it
        if any(str(workdir / part) in str(error) for part in (inside, *inside.parents[:-1])):
            return NAMED, f"{inside}: {str(error)[:300]}"
        raise Failed(f"{inside} was damaged, but it said {str(error)[:300]}") from error
    if different := [name for name in left if left[name] != known.results[name]]:
        raise Failed(f"{', '.join(different)} differ")
    return EQUAL, ""


def results(workdir: pathlib.Path) -> dict[str, Any]:
    """Returns what a run leaves: the bytes of the policy, metrics but times, answers, and names of files.

    Raises:
        ValueError: a file is damaged; the library's own code reads them, and says so.
    """
    files.check(workdir / "policy")
    pages = sorted((workdir / "rollouts").glob("*.parquet"))
    names = [path.relative_to(workdir) for path in workdir.rglob("*")]
    return {
        "policy": {path.name: path.read_bytes() for path in (workdir / "policy").iterdir()},
        "metrics": [
            {name: repr(x) for name, x in record.items() if not name.startswith(CLOCK)}
            for record in metrics.read(workdir)
        ],
        "rollouts": {path.name: repr(rollout_log.read(path)) for path in pages},
        # Of a checkpoint only its step: its files have random names.
        "names": {str(x) for x in names if "checkpoints" not in x.parts[:-2]},
    }
