"""One clear line for a user's mistake, and for a disk that cannot be written."""

import contextlib
import errno
import logging
import os
import sys
from collections.abc import Iterator
from typing import Any, NoReturn

# Exit status after a failure outside the run, such as a dead server: the same command continues. It is
# EX_TEMPFAIL of sysexits.h. 2 is a user's mistake, 1 all else that would fail again.
AGAIN = 75


@contextlib.contextmanager
def user_errors(
    kinds: tuple[type[Exception], ...] = (ValueError, OSError),
) -> Iterator[None]:
    """Turns errors that name a user's mistake into one line and exit code 2.

    The default is for what runs before the first training step; after it a traceback is more useful.
    Messages of tensorstore's threads about orbax's closed event loop are suppressed: a damaged checkpoint
    fails at its first bad array, and every array read after that would print a traceback around the line.
    """
    print_unraisable = sys.unraisablehook

    def but_closed_loops(unraisable: Any) -> None:
        if str(unraisable.exc_value) != "Event loop is closed":
            print_unraisable(unraisable)

    sys.unraisablehook = but_closed_loops
    try:
        yield
        sys.unraisablehook = print_unraisable
    except kinds as error:
        end_with(f"error: {error}", code=2)


# The disk is full, read-only, not writable for the user, or broken.
REFUSED = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EIO, errno.ESTALE),
)
SAVERS = ("asyncio", "absl")  # loggers of the saving threads


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Turns errors of a disk, at any time, into one line and exit code 1."""
    try:
        yield
    except Exception as error:  # orbax and tensorstore raise other types with the same text
        if not any(os.strerror(number) in str(error) for number in REFUSED):
            raise
        reason = str(error).strip().splitlines()[0][:300]
        end_with(
            f"error: {reason}: make room or give the right to write there, and start again: what was "
            "saved before is whole",
            code=1,
        )


def end_with(line: str, code: int) -> NoReturn:
    """Prints a last line and ends the process."""
    # A failed save or restore leaves threads at work and hundreds of futures. Orbax and asyncio would print a
    # traceback for each, after the line and without any new information.
    for name in SAVERS:
        logging.getLogger(name).disabled = True
    print(line, file=sys.stderr)
    sys.exit(code)
