"""Maps a function over items in a few threads, in order, with a limited number at a time.

Decoding and resizing an image release the interpreter's lock, so threads are enough. Results and errors are
those of a plain loop, whatever the number of threads: the first item that fails raises its error.
"""

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")
# Of a function of each item: a list of all results, or one result after the other; in order.
Map = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]
Stream = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
_AHEAD = 2  # most items per thread that are submitted at a time


class Threads:
    """A pool of threads. Close it after use, or use it in a `with` statement.

    Several maps may run at once, but the function of one map must not start another: both would wait for
    the same threads.

    Args:
        num_threads: 0 runs everything in the calling thread.
    """

    def __init__(self, num_threads: int):
        self._most = _AHEAD * num_threads
        self._threads = None
        if num_threads:
            self._threads = futures.ThreadPoolExecutor(num_threads, "loading")

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Returns `function` of each item."""
        return list(self.stream(function, items))

    def stream(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yields the results of `map`; takes only as many items ahead as keep the threads busy."""
        if self._threads is None:
            yield from map(function, items)
            return
        # Not Executor.map, which would take all items at once, and each may hold megabytes of pixels.
        begun = collections.deque()
        try:
            for item in items:
                begun.append(self._threads.submit(function, item))
                if len(begun) >= self._most:
                    yield begun.popleft().result()
            while begun:
                yield begun.popleft().result()
        finally:
            for future in begun:
                future.cancel()

    def close(self) -> None:
        """Cancels calls that have not started, waits for the others, and ends the threads."""
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)

    def __enter__(self) -> "Threads":
        return self

    def __exit__(self, *_) -> None:
        self.close()


in_turn: Map = Threads(0).map  # a plain loop in the calling thread
