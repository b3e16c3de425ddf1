"""Trials: a fault hits a run, the run is started again until it ends, and its results are judged."""

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

from experiments.torture import faults
from experiments.torture.faults import Fault
from vade_jax.models.qwen import files
from vade_jax.store import metrics, rollout_log

EQUAL, NAMED, FAILED = "bit-equal", "damage named", "failed"
BUSY = "has not ended"  # said by a run if processes that a killed one had started still run
CLOCK = ("timing_s/", "perf/")  # metrics that differ between any two runs
POLL_S = 0.02


class Failed(Exception):  # noqa: N818 (says what happened)
    """A run did something that it must not do."""


class Reference(NamedTuple):
    """The run without a fault."""

    results: dict[str, Any]
    limit: float  # seconds after which a run counts as hanging


class Running:
    """A started run, killed with all that it has started at the end of its `with` block, and its output."""

    def __init__(self, command: Sequence[str], workdir: pathlib.Path, log: pathlib.Path):
        self._log = log
        with log.open("ab") as file:
            self._start = file.tell()
            self.process = subprocess.Popen(
                [*command, f"--workdir={workdir}"],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def wait(self, limit: float) -> int:
        """Returns the exit code; a run that hangs has failed."""
        try:
            return self.process.wait(limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"did not end within {limit:.0f} s") from None

    def error(self) -> str:
        """Returns the last line of the output if it is an error, else ""."""
        with self._log.open("rb") as file:
            file.seek(self._start)
            text = file.read().decode(errors="replace").replace("\r", "\n")
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines and lines[-1].startswith("error: ") else ""


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
    with Running(command, workdir, workdir.with_suffix(".log")) as running:
        if running.process.wait():
            said = running.error().removeprefix("error: ")
            raise RuntimeError(f"the job without a fault failed: {said}")
    return Reference(results(workdir), limit=120 + 6 * (time.monotonic() - start))


def trial(
    command: Sequence[str], fault: Fault, known: Reference, root: pathlib.Path
) -> tuple[str, str]:
    """Makes one trial in `root`; returns how it ended and why. A trial that failed leaves its directory."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    workdir, log = root / "run", root.with_suffix(".log")
    try:
        with faults.small_disk(root) if fault.kind == faults.FULL else contextlib.nullcontext():
            workdir.mkdir()
            with Running(command, workdir, log) as running:
                _hurt(running, fault, known, workdir)
            damaged = faults.damage(workdir, fault) if fault.kind == faults.FLIP else None
            ended = _again(command, known, workdir, log, damaged)
    except Failed as error:
        return FAILED, str(error)
    shutil.rmtree(root)
    log.unlink()
    return ended


def _hurt(running: Running, fault: Fault, known: Reference, workdir: pathlib.Path) -> None:
    """Waits for the moment of a fault, causes it, and waits until the run has ended."""
    process, rng, deadline = running.process, fault.rng(), time.monotonic() + known.limit
    while process.poll() is None and not any(workdir.parent.glob(faults.MOMENTS[fault.moment])):
        if time.monotonic() > deadline:
            raise Failed(f"did not come to {fault.moment!r}")
        time.sleep(POLL_S)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(fault.later)
    if fault.kind == faults.FULL:
        filler = faults.fill(workdir.parent, int(rng.integers(1 << 18)))
        code = running.wait(known.limit)
        filler.unlink()
        if code and not running.error():
            raise Failed(f"exit code {code} without one line of error")
    elif fault.kind == faults.TERMINATE:
        process.terminate()
        running.wait(known.limit)
    elif fault.kind == faults.INTERRUPT:
        process.send_signal(signal.SIGINT)
        time.sleep(float(rng.random()))
        process.send_signal(signal.SIGINT)
        running.wait(known.limit)
    elif rng.random() < 0.5:  # else it is killed with all that it has started
        process.kill()
        process.wait()


def _again(command, known: Reference, workdir, log, damaged) -> tuple[str, str]:
    """Starts the run again until it ends well or names the damaged file, and judges its results."""
    deadline, line = time.monotonic() + known.limit, BUSY
    while BUSY in line and time.monotonic() < deadline:
        with Running(command, workdir, log) as running:
            failed = running.wait(known.limit)
            line = (running.error() or "no line of error") if failed else ""
    try:
        if line:
            raise ValueError(line)
        left = results(workdir)
    except (ValueError, OSError) as error:  # or the library refuses to read a file, and says which
        if damaged:
            return _judged(str(error), workdir, damaged)
        raise Failed(f"started again: {error}") from error
    if different := [name for name in left if left[name] != known.results[name]]:
        raise Failed(f"{', '.join(different)} differ")
    return EQUAL, ""


def _judged(line: str, workdir: pathlib.Path, damaged: pathlib.Path) -> tuple[str, str]:
    """Returns NAMED if a line names the damaged file or a directory above it."""
    inside = damaged.relative_to(workdir)
    if any(str(workdir / part) in line for part in (inside, *list(inside.parents)[:-1])):
        return NAMED, f"{inside}: {line[:300]}"
    raise Failed(f"{inside} was damaged, but it said {line[:300]}")


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
            for record in metrics.scan(workdir / metrics.FILE)[0]
        ],
        "rollouts": {path.name: repr(rollout_log.read(path)) for path in pages},
        # Of a checkpoint only its step: its files have random names.
        "names": {str(x) for x in names if "checkpoints" not in x.parts[:-2]},
    }
