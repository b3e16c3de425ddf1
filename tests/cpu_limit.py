"""A guard against text on which a program would work for ever."""

import contextlib
import signal


@contextlib.contextmanager
def cpu_limit(seconds: float):
    """Raises TimeoutError in the block after so much work of this process, however long it waits.

    Far above what the block takes: it tells "never ends" from "ends", and no machine from another.
    """

    def end(*_):
        raise TimeoutError(f"still at work after {seconds} s of CPU time")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
