"""run.json: the settings of a run, what it is of, and how far it came.

    {"state": "running", "num_items": 512, "identity": {"items": 2768625435, ...}, "settings": {...}}

A "new" run has not saved a step, and its directory may become another's. A "running" one has checkpoints. A
"done" one has exported its policy, and says after which "step" and how many answers ("rollouts_total").
"""

import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from vade_jax import atomic
from vade_jax.types import PathLike

FILE = "run.json"
NEW, RUNNING, DONE = "new", "running", "done"


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
        if isinstance(content, dict) and isinstance(content["settings"], dict):
            return content
    except (ValueError, KeyError):
        pass
    raise ValueError(f"{path} is not readable as a run's file: restore it from a copy")


def write(workdir: PathLike, content: Mapping[str, Any]) -> None:
    """Replaces the file, atomically."""
    atomic.write_text(
        pathlib.Path(workdir) / FILE, json.dumps(content, indent=2) + "\n", fsync=True
    )


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
    return [
        f"{name}: {a!r} there, {b!r} now"
        for name, a, b in _differing(*(json.loads(json.dumps(x)) for x in (old, new)))
        if not {name, name.split(".")[0]} & set(may_differ)
    ]


def _differing(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted({*old, *new}):
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differing(a, b, f"{prefix}{name}.")
        elif a != b:
            yield f"{prefix}{name}", a, b
