"""Starts programs, each with its own log; runs several at a time until all are done or it is stopped."""

import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from vade_jax.types import PathLike

STOPS = (signal.SIGINT, signal.SIGTERM)


class Program(NamedTuple):
    """A command to run."""

    name: str
    command: Sequence[str]
    log: str  # its output is appended to this file


class Ended(NamedTuple):
    """How a program ended; `code` is None if the pool was stopped before the program started."""

    program: Program
    code: int | None
    seconds: float = 0.0
    log_start: int = 0  # the byte of the log where the output of this start begins

    def reason(self) -> str:
        """Returns the last error that this start wrote to its log, or the last line if there is none."""
        lines = printed(self.program.log, self.log_start)
        errors = [line for line in lines if line.startswith("error:")]
        return (errors or lines or ["it printed nothing"])[-1][:300]


@contextlib.contextmanager
def started(command: Sequence[str], log: PathLike) -> Iterator[subprocess.Popen]:
    """Starts a program that appends to a log; what still runs at the end of the `with` block is killed."""
    with open(log, "ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            # In a new session a Ctrl-C at the terminal reaches the program only through us, once.
            start_new_session=True,
            env={"TQDM_MININTERVAL": "30", **os.environ},
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def printed(log: PathLike, start: int = 0) -> list[str]:
    """Returns the lines that programs wrote to a log, from a byte on."""
    text = pathlib.Path(log).read_bytes()[start:].decode(errors="replace").replace("\r", "\n")
    return [line.strip() for line in text.split("\n") if line.strip()]


class ProgramPool:
    """Runs programs, `parallel` at a time, and handles Ctrl-C and SIGTERM inside its `with` block.

    Each of the `parallel` places has its share of the cores, if the system supports that. After the first
    Ctrl-C or SIGTERM nothing more is started, and the running programs are asked to save and stop; a second
    one asks them again.
    """

    def __init__(self, parallel: int):
        self._parallel, self._stopped = parallel, threading.Event()
        self._running: set[subprocess.Popen] = set()

    def __enter__(self) -> "ProgramPool":
        self._before = {number: signal.signal(number, self._stop) for number in STOPS}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def stopped(self) -> bool:
        """Whether the pool was asked to stop."""
        return self._stopped.is_set()

    def run(self, programs: Sequence[Program]) -> Iterator[Ended]:
        """Yields how each program ended, as it ends."""
        places = iter(shares(self._parallel))

        def pin() -> None:
            # This pins only the calling thread; programs that it starts inherit its cores.
            if cores := next(places):
                os.sched_setaffinity(0, cores)

        with concurrent.futures.ThreadPoolExecutor(self._parallel, initializer=pin) as executor:
            waiting = [executor.submit(self._run, program) for program in programs]
            try:
                for done in concurrent.futures.as_completed(waiting):
                    yield done.result()
            finally:  # if the caller fails, nothing more is started
                for program in waiting:
                    program.cancel()

    def _run(self, program: Program) -> Ended:
        start = time.monotonic()
        if self.stopped:
            return Ended(program, None)
        pathlib.Path(program.log).parent.mkdir(parents=True, exist_ok=True)
        with open(program.log, "a") as log:
            log.write(f"\n$ {shlex.join(program.command)}\n")
            log_start = log.tell()
        with started(program.command, program.log) as process:
            self._running.add(process)
            if self.stopped:  # `_stop` may have missed it while it was being started
                process.send_signal(signal.SIGTERM)
            code = process.wait()
        self._running.discard(process)
        return Ended(program, code, time.monotonic() - start, log_start)

    def _stop(self, number, frame):
        self._stopped.set()
        for process in list(self._running):
            process.send_signal(signal.SIGTERM)
        with contextlib.suppress(OSError):  # the terminal may be gone
            os.write(sys.stderr.fileno(), b"\nstopping: running programs save and end\n")


def shares(parallel: int) -> list[Sequence[int]]:
    """Returns the cores of each place; () for all if there are fewer cores than places."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if parallel > len(cores):
        return [()] * parallel
    bounds = [round(i * len(cores) / parallel) for i in range(parallel + 1)]
    return [cores[a:b] for a, b in itertools.pairwise(bounds)]
