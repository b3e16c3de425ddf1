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


@dataclasses.dataclass
class Clock:
    """The remaining seconds for one answer; the start of a worker does not count."""

    left: float = 3.0


class WorkerPool:
    """A pool of workers, started with the first expression; any number of threads may use it.

    Args:
        num_workers: the largest number of processes.
        deadline: seconds for one comparison, after which the worker is killed and replaced.
    """

    def __init__(self, num_workers: int = 4, deadline: float = 3.0):
        self._deadline = deadline
        self._free = threading.BoundedSemaphore(num_workers)
        self._idle: list[_Worker] = []  # each of its calls is atomic

    def check(self, key: Any, given: Any, *more: Any, clock: Clock | None = None) -> str:
        """Returns the reason of a `verify.Verdict` for two expressions.

        The reason is the worker's own, or "timeout" or "crash".

        Args:
            key: LaTeX or a tree of `values`.
            given: likewise.
            *more: the question and the room, as `expression_worker.compare` has them.
            clock: of an answer that asks several questions: they share its seconds.

        Raises:
            RuntimeError: no worker can be started.
        """
        clock = clock or Clock(self._deadline)
        with self._free:  # so there are never more workers than allowed
            worker = self._take()
            try:
                start = time.monotonic()
                reason = worker.ask([key, given, *more], min(clock.left, self._deadline))
                clock.left -= time.monotonic() - start
            except BaseException:  # such as Ctrl-C: a late reply would go to the next request
                worker.kill()
                raise
            if reason in ("timeout", "crash"):
                worker.kill()
            else:
                self._idle.append(worker)
        return reason

    def close(self) -> None:
        """Ends the idle workers; the next expression starts another."""
        while worker := self._pop():
            worker.kill()

    def _take(self) -> "_Worker":
        """Returns a live worker that is not in use; an idle one may have died."""
        while worker := self._pop():
            if worker.is_alive():
                return worker
            worker.kill()
        return _Worker(self._deadline)

    def _pop(self) -> "_Worker | None":
        try:
            return self._idle.pop()
        except IndexError:  # another thread took it, or there is none
            return None


class _Worker:
    """One process; its pipes carry one line for each request and each reply."""

    def __init__(self, deadline: float):
        # -P: do not import from the directory of the worker's file.
        command = [sys.executable, "-P", str(_WORKER), str(deadline), str(_MEMORY)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C is for the run
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout
        if self._reply(START_SECONDS) != "ready":
            self.kill()
            raise RewardFailure(
                f"the worker for expressions did not start ({' '.join(command)}); its output is "
                "above. Is SymPy installed?"
            )

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: list, deadline: float) -> str:
        """Returns the worker's reason, "timeout", or "crash" if it ended."""
        try:
            self._stdin.write(json.dumps(request).encode() + b"\n")
        except BrokenPipeError:
            return "crash"
        return self._reply(deadline)

    def kill(self) -> None:
        """Ends the process; may be called again."""
        self._process.kill()
        self._process.wait()
        self._stdin.close()
        self._stdout.close()

    def _reply(self, seconds: float) -> str:
        if not connection.wait([self._stdout.fileno()], seconds):
            return "timeout"
        return os.read(self._stdout.fileno(), 100).decode().strip() or "crash"


SHARED = WorkerPool()
atexit.register(SHARED.close)
