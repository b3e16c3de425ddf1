"""Loads the user's rewards and selectors from path/to/file.py:NAME or module:NAME."""

import functools
import importlib
import importlib.util
import os
import pathlib
import sys
import sysconfig
import traceback
from typing import Any

from vade_jax import fields

_SHOWN = 200  # characters of an error, which may quote a user's data


def load(place: str, setting: str, more: str = "") -> Any:
    """Imports a file or module and returns the object NAME in it.

    Args:
        place: path/to/file.py:NAME or module:NAME.
        setting: name of the setting that holds `place`, for error messages.
        more: other values that the setting accepts, for the error about a place without a colon.

    Raises:
        ValueError: there is no such file, module or name, or importing it fails.
    """
    where, _, name = place.rpartition(":")
    label = f"{setting}={place!r}"
    if not where or not name:
        raise ValueError(f"{label}: write path/to/file.py:NAME or module:NAME{more}")
    try:
        if where.endswith(".py"):
            module = _import_file(os.path.realpath(os.path.expanduser(where)))
        else:
            module = importlib.import_module(where)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{label}: importing {where} failed: {one_line(error)}") from error
    if not hasattr(module, name):
        hint = fields.did_you_mean(name, vars(module))
        raise ValueError(f"{label}: {where} has no {name!r}: {hint}".rstrip(": "))
    return getattr(module, name)


def label(place: str) -> str:
    """Returns the short name of a place for tables and file names: mine.NAME for path/to/mine.py:NAME.

    A word without a colon is returned unchanged.
    """
    where, colon, name = place.rpartition(":")
    return f"{pathlib.Path(where).stem}.{name}" if colon else place


@functools.cache  # a file is imported once: its functions share its globals
def _import_file(path: str):
    """Imports a file as a separate module; it can import other modules in its directory."""
    file = pathlib.Path(path)
    spec = importlib.util.spec_from_file_location(f"users_file_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look it up there
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    spec.loader.exec_module(module)
    return module


def one_line(error: BaseException) -> str:
    """Returns an error as one line of text, with the file and line of the user's code that caused it."""
    text = f"{type(error).__name__}: {error!s:.{_SHOWN}}".rstrip(": ")
    packages = [sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib")]
    others = (*packages, os.path.dirname(__file__), "<")
    frames = traceback.extract_tb(error.__traceback__)
    for frame in [x for x in frames if not x.filename.startswith(others)][-1:]:  # the innermost
        text += f" ({pathlib.Path(frame.filename).name}, line {frame.lineno})"
    return " ".join(text.split())
