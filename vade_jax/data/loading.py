"""Maps a function over items in a few threads, in order, with a limited number at a time.

Decoding and resizing an image release the interpreter's lock, so threads are enough. Results and errors are
those of `map`, whatever the number of threads: the first item that fails raises its error.
"""

import collections
import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from typing import Any

# Returns a function's result for each item, in order, as `map` does.
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
_AHEAD = 2  # most items per thread that are submitted at a time


@contextlib.contextmanager
def threads(number: int) -> Iterator[Map]:
    """Yields a `map` in so many threads, for a `with` statement.

    Several such maps may run at once, but a mapped function must not start another map: both would wait for
        the same threads.
    """
    pool = futures.ThreadPoolExecutor(number, "loading")

    # Not `pool.map`, which would take all items at once, and each may hold megabytes of pixels.
    def in_threads(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        begun = collections.deque()
        for item in items:
            begun.append(pool.submit(function, item))
            if len(begun) >= _AHEAD * number:
                yield begun.popleft().result()
        while begun:
            yield begun.popleft().result()

    try:
        yield in_threads
    finally:
        pool.shutdown(cancel_futures=True)
