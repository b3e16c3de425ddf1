"""One clear line for a user's mistake, and for a disk that takes nothing more."""

import contextlib
import errno
import functools
import logging
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn


@contextlib.contextmanager
def user_errors(
    kinds: tuple[type[Exception], ...] = (ValueError, OSError),
) -> Iterator[None]:
    """Turns the errors that name a user's mistake into one line and exit code 2.

    Threads of tensorstore stay silent about orbax's event loop: a damaged checkpoint fails at its first
    bad array, and every array that is read after that would print a traceback around the one line.

    Args:
        kinds: of errors. The default is for what is done before any training step; behind that a
            traceback is wanted.
    """
    print_unraisable = sys.unraisablehook
    sys.unraisablehook = functools.partial(_but_closed_loops, print_unraisable)
    try:
        yield
        sys.unraisablehook = print_unraisable
    except kinds as error:
        _end_with(f"error: {error}", code=2)


def check_all_flags(rest: Sequence[str]) -> None:
    """Raises ValueError if words are left behind the program's name: absl would run without them."""
    if rest[1:]:
        word = rest[1]
        hint = f"did you mean --{word}?" if "=" in word else "give values as --name=value"
        raise ValueError(f"{word!r} is no flag: {hint}")


def _but_closed_loops(print_unraisable: Callable[..., None], found: Any) -> None:
    """Reports exceptions that a thread could not raise, but for those of an event loop that is closed."""
    if str(found.exc_value) != "Event loop is closed":
        print_unraisable(found)


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
        _end_with(
            f"error: {said}: make room or give the right to write there, and start again: what was "
            "saved before is whole",
            code=1,
        )


def _end_with(line: str, code: int) -> NoReturn:
    """Ends the process with a last line."""
    # A save or a restore that failed leaves hundreds of futures, of which asyncio would print a
    # traceback each when they are collected: behind the line, and with nothing that it does not say.
    logging.getLogger("asyncio").disabled = True
    print(line, file=sys.stderr)
    sys.exit(code)
