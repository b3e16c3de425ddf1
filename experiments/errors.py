"""One clear line for a user's mistake, and for a disk that takes nothing more."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def user_errors(
    kinds: tuple[type[Exception], ...] = (ValueError, OSError),
) -> Iterator[None]:
    """Turns the errors that name a user's mistake into one line and exit code 2.

    Args:
        kinds: of errors. The default is for what is done before any training step; behind that a
            traceback is wanted.
    """
    try:
        yield
    except kinds as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


# A disk that is full, or read-only, or not one's own.
REFUSED = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM),
    *(errno.EIO, errno.ESTALE),
)


@contextlib.contextmanager
def disk_errors() -> Iterator[None]:
    """Turns what a disk refuses, at whatever moment, into one line and exit code 1."""
    try:
        yield
    except Exception as error:  # orbax and tensorstore raise other kinds, with the same words
        if not any(os.strerror(number) in str(error) for number in REFUSED):
            raise
        said = str(error).strip().splitlines()[0][:300]
        sys.exit(
            f"error: {said}: make room or give the right to write there, and start again: what was "
            "saved before is whole"
        )
