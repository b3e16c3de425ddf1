"""Runs several programs at a time, each with its own cores and log, until all are done or it is stopped."""

import concurrent.futures
import contextlib
import fcntl
import itertools
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

STOPS = (signal.SIGINT, signal.SIGTERM)
LOOK_S = 0.5  # between two looks at what a program has done
BUSY = os.EX_TEMPFAIL  # the exit code of a program whose log another process holds


class Program(NamedTuple):
    """A command to run."""

    name: str
    command: Sequence[str]
    log: str  # its output is appended to this file


class Ended(NamedTuple):
    """How a program ended; `code` is None if the sweep was stopped before the program started."""

    program: Program
    code: int | None
    seconds: float = 0.0
    log_start: int = 0  # the byte of the log where the output of this start begins

    def reason(self) -> str:
        """Returns the last error that this start wrote to its log, or the last line if there is none."""
        if self.code == BUSY:
            return "error: another process makes this run now; wait for it, or stop it"
        # The same log has the output of earlier starts.
        said = pathlib.Path(self.program.log).read_bytes()[self.log_start :]
        text = said.decode(errors="replace")
        lines = [x.strip() for x in text.replace("\r", "\n").split("\n") if x.strip()]
        errors = [x for x in lines if x.startswith("error:")]
        return (errors or lines or ["it printed nothing"])[-1][:300]


class ProgramPool:
    """Runs programs, `parallel` at a time, and handles Ctrl-C and SIGTERM inside its `with` block.

    Each of the `parallel` places has its share of the cores, if the system supports that. After the first
    Ctrl-C or SIGTERM nothing more is started, and the running programs are asked to save and stop; a second
    one asks them again.
    """

    def __init__(self, parallel: int):
        self._parallel, self._stopped = parallel, threading.Event()
        self._environment = {"TQDM_MININTERVAL": "30", **os.environ}
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

    def run(
        self, programs: Sequence[Program], has_compiled: Callable[[Program], bool] | None = None
    ) -> Iterator[Ended]:
        """Yields how each program ended, as it ends.

        Several programs that start together would compile the same code side by side. If `has_compiled` is
        given, the first runs alone until it is True of it; the others find its code in the cache.
        """
        places = iter(shares(self._parallel))

        def pin() -> None:
            # This pins only the calling thread; programs that it starts inherit its cores.
            if cores := next(places):
                os.sched_setaffinity(0, cores)

        with concurrent.futures.ThreadPoolExecutor(self._parallel, initializer=pin) as executor:
            waiting = [executor.submit(self._run, program) for program in programs[:1]]
            while has_compiled and self._parallel > 1 and not self.stopped:
                if not waiting or waiting[0].done() or has_compiled(programs[0]):
                    break
                time.sleep(LOOK_S)
            waiting += [executor.submit(self._run, program) for program in programs[1:]]
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
            try:
                # The program inherits the file and with it the lock. If this process is killed and the
                # sweep starts again, a run that is still running is not started twice.
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return Ended(program, BUSY)
            log.write(f"\n$ {shlex.join(program.command)}\n")
            log.flush()
            log_start = log.tell()
            process = subprocess.Popen(
                program.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # In a new session a Ctrl-C at the terminal reaches the program only through us, once.
                start_new_session=True,
                env=self._environment,
            )
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
            os.write(sys.stderr.fileno(), b"\nstopping: what runs saves and ends\n")


def shares(parallel: int) -> list[Sequence[int]]:
    """Returns the cores of each place; () for all if there are fewer cores than places."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if parallel > len(cores):
        return [()] * parallel
    bounds = [round(i * len(cores) / parallel) for i in range(parallel + 1)]
    return [cores[a:b] for a, b in itertools.pairwise(bounds)]
