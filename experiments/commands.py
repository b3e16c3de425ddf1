"""The command line of commands: their help, and one line for a mistake in it.

absl's own help leaves out the flags of other files, or lists a hundred flags of other packages, and ends
with an error.
"""

import inspect
import sys
from collections.abc import Sequence

from absl import flags

from experiments.errors import check_all_flags

HELP = {"-h", "-help", "--help"}


def parse(argv: Sequence[str]) -> list[str]:
    """Parses the flags of a command without a config: the `flags_parser` of `app.run`."""
    if HELP & set(argv[1:]):
        print(help_text())
        sys.exit(0)
    try:
        rest = flags.FLAGS(argv)
        check_all_flags(rest)
        return rest
    except (flags.Error, ValueError) as error:
        sys.stderr.write(f"error: {' '.join(str(error).split())}\n")
        sys.exit(2)


def help_text(*modules: str) -> str:
    """Returns the purpose of the command that runs, and its flags; those of `modules` are among them."""
    main = sys.modules["__main__"]
    own = (main.__file__ or "", *modules)
    by_module = flags.FLAGS.flags_by_module_dict()
    found = [
        flag
        for module in by_module
        if module in own or module == sys.argv[0]
        for flag in by_module[module]
    ]
    lines = [inspect.cleandoc(main.__doc__ or ""), "", "Flags:"]
    for flag in sorted(found, key=lambda flag: flag.name):
        value = "" if flag.default in (None, False, "") else f" (default {flag.default})"
        lines.append(f"  --{flag.name}: {flag.help}{value}")
    return "\n".join(lines)
