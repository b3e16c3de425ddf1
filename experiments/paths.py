"""Flags that are paths. A shell does not expand a "~" after "=", so it becomes the home directory here."""

import os
from typing import Any

from absl import flags

flags.disclaim_key_flags()  # a flag is that of the command that calls `define`, in whose help it stands


class _Parser(flags.ArgumentParser):
    syntactic_help = "a path"

    def parse(self, argument: str) -> str:
        return os.path.expanduser(argument)


def define(name: str, default: str | None, help: str, **options: Any) -> flags.FlagHolder:
    """Defines a path flag; the arguments are those of `flags.DEFINE_string`."""
    return flags.DEFINE(_Parser(), name, default, help, **options)


def define_multi(name: str, default: list[str], help: str) -> flags.FlagHolder:
    """Defines a path flag that may be given several times."""
    return flags.DEFINE_multi(_Parser(), flags.ArgumentSerializer(), name, default, help)


def path(argument: str) -> str:
    """Returns the path of an argument; for `type=` of `argparse`."""
    return os.path.expanduser(argument)
