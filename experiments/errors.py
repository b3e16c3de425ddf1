"""One clear line for a user's mistake."""

import contextlib
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
