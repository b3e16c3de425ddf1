"""Processes that compare expressions, and are killed when one takes too long.

math-verify's own timeouts are signals, which only the main thread gets, and no signal handler of Python
runs within the one C call that evaluates 9^{9^{9^9}}. So comparisons happen in processes that can be
killed. They are started by path, not by multiprocessing: a worker imports math-verify alone, no JAX, and
no main module of the run.
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

START_SECONDS = 120.0  # to import sympy, on a busy machine
_MEMORY = 2 << 30  # bytes that a worker may map (on Linux)
_WORKER = pathlib.Path(__file__).with_name("expression_worker.py")


class RewardFailure(RuntimeError):  # noqa: N818 (says what happened)
    """Answers cannot be judged: names the reward function, the row and the answer, or the worker."""


@dataclasses.dataclass
class Clock:
    """What is left of the seconds for one answer; the start of a worker does not count."""

    left: float = 3.0


class WorkerPool:
    """Workers that start when the first expression comes; any number of threads may ask.

    Args:
        num_workers: most processes at a time.
        deadline: seconds for one comparison; then the worker is killed and replaced.
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
            RuntimeError: if no worker can be started.
        """
        clock = clock or Clock(self._deadline)
        with self._free:  # so there are never more workers than places
            worker = self._take()
            try:
                start = time.monotonic()
                reason = worker.ask([key, given, *more], min(clock.left, self._deadline))
                clock.left -= time.monotonic() - start
            except BaseException:  # such as Ctrl-C: its late reply would be the next one's
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
        """Returns a living worker that nobody else has; one may have died while it was idle."""
        while worker := self._pop():
            if worker.is_alive():
                return worker
            worker.kill()
        return _Worker(self._deadline)

    def _pop(self) -> "_Worker | None":
        try:
            return self._idle.pop()
        except IndexError:  # another thread was faster, or there was none
            return None


class _Worker:
    """One process; its pipes carry one line for each request and each reply."""

    def __init__(self, deadline: float):
        # -P: the directory of the worker's file is no place to import from.
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
                "above. Is math-verify installed?"
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
