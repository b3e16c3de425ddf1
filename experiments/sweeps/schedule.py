"""Several programs at a time, each with its own cores and log, until all are done or one is stopped."""

import concurrent.futures
import contextlib
import dataclasses
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
from collections.abc import Iterable, Iterator, Sequence

STOPS = (signal.SIGINT, signal.SIGTERM)
BUSY = os.EX_TEMPFAIL  # the code of a job that somebody else has


@dataclasses.dataclass(frozen=True)
class Job:
    """A program to run."""

    name: str
    command: Sequence[str]
    log: str  # appended to


@dataclasses.dataclass(frozen=True)
class Ended:
    """How a program ended; code None: it was not started, as the sweep was stopped."""

    job: Job
    code: int | None
    seconds: float

    def reason(self) -> str:
        """Returns the error that its log ends with, or else its last line."""
        if self.code == BUSY:
            return "error: another process makes this run now; wait for it, or stop it"
        text = pathlib.Path(self.job.log).read_text(errors="replace")
        lines = [x.strip() for x in text.replace("\r", "\n").split("\n") if x.strip()]
        errors = [x for x in lines if x.startswith("error:")]
        return (errors or lines)[-1][:300]


class Pool:
    """Runs jobs, `parallel` at a time. A context: Ctrl-C and SIGTERM are handled inside.

    Each place has its share of the cores where the system can say so. The first Ctrl-C or SIGTERM
    starts nothing more and asks what runs to save and stop; the second asks it again.
    """

    def __init__(self, parallel: int):
        self._cores = shares(parallel)
        self._parallel, self._stopped = parallel, threading.Event()
        self._running: set[subprocess.Popen] = set()

    def __enter__(self) -> "Pool":
        self._before = {number: signal.signal(number, self._stop) for number in STOPS}
        return self

    def __exit__(self, *_) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @property
    def stopped(self) -> bool:
        """Whether it was asked to stop."""
        return self._stopped.is_set()

    def run(self, jobs: Iterable[Job]) -> Iterator[Ended]:
        """Yields how each job ended, as it ends."""
        places = iter(self._cores)
        pin = lambda: _pin(next(places))
        with concurrent.futures.ThreadPoolExecutor(
            self._parallel, initializer=pin
        ) as x:
            waiting = [x.submit(self._run, job) for job in jobs]
            try:
                for done in concurrent.futures.as_completed(waiting):
                    yield done.result()
            finally:  # who asks may have failed: what has not begun then never does
                for job in waiting:
                    job.cancel()

    def _run(self, job: Job) -> Ended:
        start = time.monotonic()
        pathlib.Path(job.log).parent.mkdir(parents=True, exist_ok=True)
        if self.stopped:
            return Ended(job, None, 0.0)
        with open(job.log, "a") as log:
            if not _is_ours(log):
                return Ended(job, BUSY, 0.0)
            log.write(f"\n$ {shlex.join(job.command)}\n")
            log.flush()
            program = self._start(job, log)
            self._running.add(program)
            if self.stopped:  # while it was being started
                program.send_signal(signal.SIGTERM)
            code = program.wait()
        self._running.discard(program)
        return Ended(job, code, time.monotonic() - start)

    def _start(self, job, log):
        """In a session of its own: Ctrl-C reaches it through us, once."""
        return subprocess.Popen(
            job.command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={"TQDM_MININTERVAL": "30", **os.environ},
        )

    def _stop(self, number, frame):
        self._stopped.set()
        for program in list(self._running):
            program.send_signal(signal.SIGTERM)
        with contextlib.suppress(OSError):  # nobody may be reading any more
            os.write(sys.stderr.fileno(), b"\nstopping: what runs saves and ends\n")


def shares(parallel: int) -> list[Sequence[int]]:
    """Returns the cores of each place; nothing where there are fewer cores than places."""
    if not hasattr(os, "sched_getaffinity"):
        return [()] * parallel
    cores = sorted(os.sched_getaffinity(0))
    if parallel > len(cores):
        return [()] * parallel
    bounds = [round(i * len(cores) / parallel) for i in range(parallel + 1)]
    return [cores[a:b] for a, b in itertools.pairwise(bounds)]


def _is_ours(log) -> bool:
    """Locks a log; the program that writes it keeps the lock, whatever becomes of us."""
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _pin(cores):
    """Holds the calling thread, and what it starts, to its cores."""
    if cores:
        os.sched_setaffinity(0, cores)
