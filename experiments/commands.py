"""The command line of commands: absl's, with exit status 0 for help and one line for a mistake."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator

from absl import app, flags


def parse(argv: list[str]) -> list[str]:
    """Parses the flags of a command: the `flags_parser` of `app.run`.

    "~/" after "=" or ":" becomes the home directory, which a shell does only in assignments. `argv` changes
    in place, because ml_collections looks for overrides in `sys.argv`.
    """
    home = os.path.expanduser("~/")
    argv[:] = [re.sub("(?<=[=:])~/", lambda _: home, word) for word in argv]
    if {"-h", "-help", "--help"} & set(argv[1:]):
        app.usage(shorthelp=True, writeto_stdout=True, exitcode=0)
    with mistakes():
        rest = flags.FLAGS(argv)
        if rest[1:]:  # absl would ignore them
            word = rest[1]
            hint = f"did you mean --{word}?" if "=" in word else "give values as --name=value"
            raise ValueError(f"{word!r} is not a flag: {hint}")
        return rest


@contextlib.contextmanager
def mistakes() -> Iterator[None]:
    """Turns errors of flags and of config files into one line and exit code 2."""
    try:
        yield
    except (flags.Error, ValueError, OSError, LookupError, AttributeError, SyntaxError) as error:
        # ml_collections puts a traceback around an error of the file, and escapes around a field's name.
        line = str(error).replace("\\n", "\n").strip().splitlines()[-1].strip()
        if isinstance(error, KeyError | AttributeError) and "get_config" not in line:
            line = "the config has no such field: " + line.strip("\"\\'")
        sys.stderr.write(f"error: {line}\n")
        sys.exit(2)
