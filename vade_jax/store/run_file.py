"""run.json: the settings of a run, and what it is of.

    {"num_items": 512, "identity": {"items": 2768625435, ...}, "settings": {...}}

A run that has exported its policy adds "state": "done" and its last "step".
"""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from vade_jax import atomic
from vade_jax.types import PathLike

FILE = "run.json"


def read(workdir: PathLike) -> dict[str, Any]:
    """Returns the content of a run's file; {} if there is none.

    Raises:
        ValueError: the file is not a run's.
    """
    path = pathlib.Path(workdir) / FILE
    if not path.exists():
        return {}
    try:
        content = json.loads(path.read_text())
        if isinstance(content["settings"], dict):
            return content
    except (ValueError, KeyError, TypeError):
        pass
    raise ValueError(f"{path} is not readable as a run's file: restore it from a copy")


def write(workdir: PathLike, content: Mapping[str, Any]) -> None:
    """Replaces the file, atomically."""
    text = json.dumps(content, indent=2) + "\n"
    atomic.write_text(pathlib.Path(workdir) / FILE, text, fsync=True)


def is_done(content: Mapping[str, Any]) -> bool:
    """Returns whether the run has exported its policy; with other settings it may go on."""
    return content.get("state") == "done"


def mark_done(workdir: PathLike, step: int) -> None:
    """Notes that the policy of a step is exported."""
    write(workdir, read(workdir) | {"state": "done", "step": step})


def settings_of(workdir: PathLike) -> dict[str, Any]:
    """Returns the settings of a run.

    Raises:
        FileNotFoundError: the directory is not a run's.
        ValueError: its file is damaged.
    """
    content = read(workdir)
    if not content:
        raise FileNotFoundError(f"{workdir} has no {FILE}: give the --workdir of a run")
    return content["settings"]


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], may_differ: tuple[str, ...] = ()
) -> list[str]:
    """Returns a line for each value in which two nested mappings of settings differ, except `may_differ`.

    `may_differ` has dotted names, or those of whole sections.
    """
    # As JSON, which has no tuples.
    old, new = (dict(_flat(json.loads(json.dumps(values)))) for values in (old, new))
    return [
        f"{name}: {old.get(name)!r} there, {new.get(name)!r} now"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and not {name, name.split(".")[0]} & set(may_differ)
    ]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yields the values in nested mappings, by their dotted names."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
