"""Files with a JSON value in each line, to which lines are appended as they come."""

import json
import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def read(path: str | os.PathLike, make: Callable[[Any], T]) -> list[T]:
    """Returns what `make` makes of each line; nothing if there is no file.

    A last line that was cut off, as a killed process leaves it, is taken out of the file.

    Raises:
        ValueError: another line cannot be read.
    """
    path = pathlib.Path(path)
    if not path.exists():
        return []
    before, newline, cut_off = path.read_bytes().rpartition(b"\n")
    if cut_off:
        os.truncate(path, len(before + newline))
    values = []
    for number, line in enumerate(before.split(b"\n") if newline else [], 1):
        try:
            values.append(make(json.loads(line)))
        except (ValueError, TypeError, LookupError) as error:
            raise ValueError(f"{path}, line {number} is damaged: {error!r}") from error
    return values


def append(path: str | os.PathLike, values: Iterable[Any]) -> None:
    """Appends lines, at once; creates the file and its directory."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(value) + "\n" for value in values)
    with path.open("a") as file:
        file.write(text)
