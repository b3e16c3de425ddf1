"""Compares expressions in worker processes, which are killed if a comparison takes too long.

Timeouts by signals reach the main thread only, and Python runs no handler within the single C call that
evaluates 9^{9^{9^9}}. So comparisons run in processes that can be killed. They are started by path, not by
multiprocessing, so that a worker imports only SymPy: no JAX and no main module of the run.
"""

import atexit
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from multiprocessing import connection
from typing import Any

START_SECONDS = 120.0  # seconds for importing sympy on a busy machine
_MEMORY = 2 << 30  # bytes that a worker may map (on Linux)
_WORKER = pathlib.Path(__file__).with_name("expression_worker.py")


class RewardFailure(RuntimeError):  # noqa: N818 (says what happened)
    """Answers cannot be judged; names the reward function, the row and the answer, or the worker."""


@dataclasses.dataclass(unsafe_hash=True)
class Clock:
    """The remaining seconds for one answer, without the start of a worker. All are equal, for caches."""

    left: float = dataclasses.field(default=3.0, compare=False)


class WorkerPool:
    """A pool of workers, started with the first expression; any number of threads may use it.

    Args:
        num_workers: the largest number of processes.
        deadline: seconds for one comparison, after which the worker is killed and replaced.
    """

    def __init__(self, num_workers: int = 4, deadline: float = 3.0):
        self._deadline = deadline
        self._free = threading.BoundedSemaphore(num_workers)
        self._idle: list[Any] = []  # Popen; each call of the list is atomic

    def check(self, key: Any, given: Any, *more: Any, clock: Clock | None = None) -> str:
        """Returns what `expression_worker.compare` says of its arguments, "timeout", or "crash" if it ended.

        The questions about one answer share the seconds of its clock.

        Raises:
            RewardFailure: no worker can be started.
        """
        clock = clock or Clock(self._deadline)
        with self._free:  # so there are never more workers than allowed
            worker, reason = self._taken(), "crash"
            start = time.monotonic()
            try:
                worker.stdin.write(json.dumps([key, given, *more]).encode() + b"\n")
                reason = _reply(worker, min(clock.left, self._deadline))
            except BrokenPipeError:
                pass
            finally:  # after Ctrl-C, too: a late reply would go to the next request
                clock.left -= time.monotonic() - start
                if reason in ("timeout", "crash"):
                    _kill(worker)
                else:
                    self._idle.append(worker)
        return reason

    def close(self) -> None:
        """Ends the idle workers; the next expression starts another."""
        while worker := self._popped():
            _kill(worker)

    def _taken(self) -> Any:
        """Returns a live worker that is not in use; an idle one may have died."""
        while worker := self._popped():
            if worker.poll() is None:
                return worker
            _kill(worker)
        # -P: do not import from the directory of the worker's file.
        command = [sys.executable, "-P", str(_WORKER), str(self._deadline), str(_MEMORY)]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
        worker = subprocess.Popen(command, start_new_session=True, **pipes)  # Ctrl-C is for the run
        if _reply(worker, START_SECONDS) != "ready":
            _kill(worker)
            raise RewardFailure(
                f"the worker for expressions did not start ({' '.join(command)}); its output is "
                "above. Is SymPy installed?"
            )
        return worker

    def _popped(self) -> Any:
        try:
            return self._idle.pop()
        except IndexError:  # another thread took it, or there is none
            return None


def _reply(worker: Any, seconds: float) -> str:
    output = worker.stdout.fileno()
    if not connection.wait([output], seconds):
        return "timeout"
    return os.read(output, 100).decode().strip() or "crash"


def _kill(worker: Any) -> None:
    worker.kill()
    worker.wait()
    worker.stdin.close()
    worker.stdout.close()


SHARED = WorkerPool()
atexit.register(SHARED.close)
