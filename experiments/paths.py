"""Flags that are paths: a shell leaves a "~" behind "=" alone, so it becomes the home directory here."""

import argparse
from typing import Any

from absl import flags

from vade_jax import fields


class _Parser(flags.ArgumentParser):
    syntactic_help = "a path"

    def parse(self, argument: str) -> str:
        return fields.at_home("the path", argument)


def define(name: str, default: str | None, help: str, **options: Any) -> flags.FlagHolder:
    """Defines a flag as `flags.DEFINE_string` does."""
    return flags.DEFINE(_Parser(), name, default, help, **options)


def define_multi(name: str, default: list[str], help: str) -> flags.FlagHolder:
    """Defines a flag that may be given several times."""
    return flags.DEFINE_multi(_Parser(), flags.ArgumentSerializer(), name, default, help)


def path(argument: str) -> str:
    """Returns a path of `argparse`, whose `type` this is."""
    try:
        return fields.at_home("the path", argument)
    except ValueError as error:  # argparse has words of its own for that
        raise argparse.ArgumentTypeError(str(error)) from error
