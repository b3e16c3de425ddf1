"""Maps a function over items in a few threads: in order, a bounded number at a time.

Decoding and resizing an image release the interpreter's lock, so threads are enough. The result is that
of a plain loop, whatever the number of threads; so is the error, that of the first item that has one.
"""

import collections
import contextlib
import functools
import reprlib
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_AHEAD = 2  # items a thread that are begun or wait, at most


class Map(Protocol):
    """Calls a function with each item."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> list[R]:
        """Returns all results, in order."""
        ...


class Stream(Protocol):
    """Calls a function with each item."""

    def __call__(self, function: Callable[[T], R], items: Iterable[T], /) -> Iterable[R]:
        """Returns one result after the other, in order."""
        ...


class Threads:
    """Threads that are kept; close it, or use it in a `with` statement.

    Several maps may run at once, but not one inside another's function: they would wait for each
    other's threads.

    Args:
        num_threads: 0 runs everything in the thread that asks.

    Raises:
        ValueError: if `num_threads` is negative.
    """

    def __init__(self, num_threads: int):
        if num_threads < 0:
            raise ValueError(f"num_threads={num_threads}: must be at least 0")
        self._most = _AHEAD * num_threads
        self._threads = None
        if num_threads:
            self._threads = futures.ThreadPoolExecutor(num_threads, "loading")

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Returns `function` of each item; an exception's notes name the item."""
        return list(self.stream(function, items))

    def stream(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yields what `map` returns; no more items are taken than keep the threads busy."""
        named = functools.partial(_call, function)
        if self._threads is None:
            yield from map(named, items)
            return
        # A queue of its own, not Executor.map, which would take all items at once: each may hold
        # megabytes of pixels.
        begun = collections.deque()
        try:
            for item in items:
                begun.append(self._threads.submit(named, item))
                if len(begun) >= self._most:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()

    def close(self) -> None:
        """Waits for the calls that have begun and ends the threads."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def __enter__(self) -> "Threads":
        return self

    def __exit__(self, *_) -> None:
        self.close()


in_turn: Map = Threads(0).map  # one after the other, in the thread that asks


def _call(function: Callable[[T], R], item: T) -> R:
    try:
        return function(item)
    except Exception as error:
        with contextlib.suppress(Exception):  # a name must not hide the error
            name = getattr(item, "uid", None) or reprlib.repr(item)
            error.add_note(f"item: {name}")
        raise
