"""The processes of the user's reward functions and of SymPy: both the run's side and theirs.

Time limits such as math-verify's are signals, which only a main thread may set, and a function that hangs or
crashes must not end the run. So all functions of a run share one process. SymPy has others, which are killed
if a comparison takes too long: Python runs no signal handler within the single C call that evaluates
9^{9^{9^9}}. They are started without multiprocessing, which would import the run's main module. They share
the run's output, and end with it.
"""

import asyncio
import atexit
import collections
import contextlib
import dataclasses
import functools
import inspect
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from multiprocessing import connection
from typing import Any

from vade_jax import imports
from vade_jax.rewards.values import Tree

_END_SECONDS = 3.0  # for functions to clean up when the run ends
_CODE = "import sys; sys.path[:] = {}; from vade_jax.rewards import process; process.serve({})"
_START_SECONDS = 120.0  # for importing SymPy on a busy machine
_SECONDS = 3.0  # for all comparisons of one answer, except starting a worker
_MEMORY = 2 << 30  # bytes that a worker may map (on Linux)
_running: "Process | None" = None
_free = threading.BoundedSemaphore(4)  # the largest number of workers
_idle: "list[Process]" = []  # each call of the list is atomic
_starting = threading.Lock()


class RewardFailure(RuntimeError):  # noqa: N818 (says what happened)
    """Answers cannot be judged; names the reward function, the row and the answer, or the worker."""


class Failure(ValueError):  # noqa: N818 (says what happened)
    """An error in the process, as one line of text."""


class Ended(Failure):
    """The process ended before it replied."""


# ------------------------------------------------------------------------------ in the run
def running() -> "Process":
    """Returns the process; starts it if needed."""
    global _running
    with _starting:
        _running = _running or Process()
        return _running


@atexit.register
def close() -> None:
    """Ends the processes; the user's functions can clean up. The next call starts others."""
    if _running is not None:
        _running.end(_END_SECONDS)
    while _idle:
        _idle.pop().end()


class Process:
    """A process that calls functions, for any number of threads."""

    def __init__(self):
        self.imported: set[Any] = set()  # what callers have imported there
        self._lifeline, other = socket.socketpair()
        with other:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE.format(sys.path, other.fileno())],
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                # Functions that use JAX must leave the device's memory to the run.
                env={**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
                start_new_session=True,  # Ctrl-C is for the run
            )

    def call(
        self, function: Callable, *arguments: Any, timeout_s: float | None = None, in_thread=False
    ) -> Any:
        """Returns `function(*arguments)`, pickled, and awaited if it is a coroutine.

        Raises:
            TimeoutError: it takes longer than `timeout_s`; in the main thread, this ends the process.
            Failure: it raised an error; Ended: the process ended during the call.
        """
        request = pickle.dumps((function, arguments))
        line, other = connection.Pipe()  # one pipe per call, which closes with the process
        try:
            with line:
                with other:
                    socket.send_fds(self._lifeline, [b"t" if in_thread else b"m"], [other.fileno()])
                line.send_bytes(request)
                if not line.poll(timeout_s):
                    raise TimeoutError
                value, error = line.recv()
        except TimeoutError:
            if not in_thread:
                self.end()
            raise
        except (EOFError, OSError) as lost:
            code = self.end(1.0)
            how = f"by {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
            raise Ended(f"its process ended {how}") from lost
        if error is not None:
            raise Failure(error)
        return value

    def is_alive(self) -> bool:
        """Returns whether the process has not ended."""
        return self._process.poll() is None

    def end(self, seconds: float = 0.0) -> int:
        """Ends the process, by force after `seconds`; returns its exit code."""
        global _running
        self._lifeline.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # and its children
        with _starting:
            _running = None if _running is self else _running
        return self._process.wait()


# ------------------------------------------------------------------------------ SymPy
@dataclasses.dataclass(unsafe_hash=True)
class Clock:
    """The remaining seconds for one answer. All clocks are equal, for caches."""

    left: float = dataclasses.field(default=_SECONDS, compare=False)


@functools.lru_cache(maxsize=16384)  # the answers of a group are often equal
def ask(key: Tree, response: Tree, tolerance: Fraction, clock: Clock) -> bool:
    """Returns whether two expressions are the same, see `expression_worker.compare`.

    Any number of threads may call it.

    Raises:
        TimeoutError: no verdict in time, which also ends the worker. Failure: the worker crashed.
        RewardFailure: no worker can be started.
    """
    if clock.left <= 0:
        raise TimeoutError
    with _free:
        worker = _live_worker()
        start = time.monotonic()
        try:
            is_same = worker.call(
                _in_worker, "compare", key, response, tolerance, timeout_s=clock.left
            )
        finally:
            clock.left -= time.monotonic() - start
        _idle.append(worker)
    return is_same


def _live_worker() -> Process:
    """Returns a worker that is not in use; an idle one may have died."""
    with contextlib.suppress(IndexError):  # none is idle, or another thread took it
        while True:
            if (worker := _idle.pop()).is_alive():
                return worker
    worker = Process()
    try:
        worker.call(_in_worker, "prepare", _MEMORY, timeout_s=_START_SECONDS)
    except (Failure, TimeoutError) as error:
        worker.end()
        raise RewardFailure(
            f"the worker for expressions did not start: {error}. Is SymPy installed?"
        ) from error
    return worker


def _in_worker(name: str, *arguments: Any) -> Any:
    from vade_jax.rewards import expression_worker  # imports SymPy, which the run itself does not

    return getattr(expression_worker, name)(*arguments)


# ------------------------------------------------------------------------------ in the process
def serve(fd: int) -> None:
    """Executes the run's calls until it ends."""
    lifeline, lines = socket.socket(fileno=fd), collections.deque()
    loop = asyncio.new_event_loop()

    def read() -> None:
        fds = [fd]
        while fds:
            how, fds, *_ = socket.recv_fds(lifeline, 1, 1, socket.MSG_CMSG_CLOEXEC)
            line = connection.Connection(fds[0]) if fds else None
            loop.call_soon_threadsafe(take, line, how == b"t")
        time.sleep(_END_SECONDS)
        os.killpg(0, signal.SIGKILL)

    def take(line: connection.Connection | None, in_thread: bool) -> None:
        lines.append((line, in_thread))
        loop.stop()

    lifeline.set_inheritable(False)
    # The run decides when to end: a scheduler sends SIGTERM to all processes, and the run then saves.
    signal.signal(signal.SIGTERM, lambda *_: None)
    os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    threading.Thread(target=read, daemon=True).start()
    while True:
        loop.run_forever()  # async functions continue until the next call
        while lines:
            line, in_thread = lines.popleft()
            if line is None:
                return
            if in_thread:
                threading.Thread(target=_reply, args=(line, loop, True), daemon=True).start()
            else:
                _reply(line, loop, False)


def _reply(line: connection.Connection, loop: asyncio.AbstractEventLoop, in_thread: bool) -> None:
    try:
        function, arguments = pickle.loads(line.recv_bytes())
        value = function(*arguments)
        if inspect.iscoroutine(value):
            task = asyncio.run_coroutine_threadsafe(value, loop) if in_thread else None
            value = task.result() if task else loop.run_until_complete(value)
        answer = (value, None)
    except BaseException as error:
        answer = (None, message_of(error))
    with contextlib.suppress(OSError, ValueError):  # already closed
        sys.stdout.flush()
    with contextlib.suppress(OSError), line:  # the run may have given up
        line.send(answer)


def message_of(error: BaseException) -> str:
    """Returns an error as one line of text."""
    return str(error) if isinstance(error, Failure) else imports.one_line(error)
