"""Compares expressions with SymPy in processes that are killed if a comparison takes too long.

Timeouts by signals reach the main thread only, and Python runs no handler within the single C call that
evaluates 9^{9^{9^9}}. Key and answer are sent as trees of `values`, so no text is ever evaluated.
"""

import atexit
import contextlib
import dataclasses
import functools
import threading
import time
from fractions import Fraction
from typing import Any

from vade_jax.rewards import process
from vade_jax.rewards.values import Tree

START_SECONDS = 120.0  # seconds for importing sympy on a busy machine
_SECONDS = 3.0  # for the comparisons of one answer, without the start of a worker
_MEMORY = 2 << 30  # bytes that a worker may map (on Linux)
_free = threading.BoundedSemaphore(4)  # the largest number of workers
_idle: list[process.Process] = []  # each call of the list is atomic


class Failed(ValueError):  # noqa: N818 (says what happened)
    """SymPy reached no verdict; the reason is "timeout" or "crash"."""


@dataclasses.dataclass(unsafe_hash=True)
class Clock:
    """The remaining seconds for one answer. All clocks are equal, for caches."""

    left: float = dataclasses.field(default=_SECONDS, compare=False)


@functools.lru_cache(maxsize=16384)  # the answers of a group are often equal
def ask(key: Tree, given: Tree, room: Fraction, clock: Clock) -> bool:
    """Returns whether two expressions are the same, as `expression_worker.compare` says.

    Any number of threads may ask. Of two relations one may be the other by a factor.

    Raises:
        Failed: not in time, or the worker crashed; this is not cached.
        RewardFailure: no worker can be started.
    """
    if clock.left <= 0:
        raise Failed("timeout")
    with _free:
        worker = _live_worker()
        start = time.monotonic()
        try:
            is_same = worker.call(_in_worker, "compare", key, given, room, timeout_s=clock.left)
        except TimeoutError:  # which has ended the worker
            raise Failed("timeout") from None
        except process.Ended:
            raise Failed("crash") from None
        finally:
            clock.left -= time.monotonic() - start
        _idle.append(worker)
    return is_same


def _live_worker() -> process.Process:
    """Returns a worker that is not in use; an idle one may have died."""
    with contextlib.suppress(IndexError):  # there is none, or another thread took it
        while True:
            if (worker := _idle.pop()).is_alive():
                return worker
    worker = process.Process()
    try:
        worker.call(_in_worker, "prepare", _MEMORY, timeout_s=START_SECONDS)
    except (process.Failure, TimeoutError) as error:
        worker.end()
        raise process.RewardFailure(
            f"the worker for expressions did not start: {error}. Is SymPy installed?"
        ) from error
    return worker


def _in_worker(name: str, *arguments: Any) -> Any:
    from vade_jax.rewards import expression_worker  # and SymPy, which the run does without

    return getattr(expression_worker, name)(*arguments)


@atexit.register
def close() -> None:
    """Ends the idle workers; the next expression starts another."""
    while _idle:
        _idle.pop().end()
