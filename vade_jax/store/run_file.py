"""run.json: the settings of a run, the data and model that it began with, and its state.

    {"state": "running", "num_items": 512, "identity": {"items": 2768625435, ...}, "settings": {...}}

The state is "new" until right before the first checkpoint, then "running", and "done" when the policy is
exported; then "step" is the run's last.
"""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from flax import traverse_util

from vade_jax import atomic
from vade_jax.types import PathLike

FILE = "run.json"
NEW, RUNNING, DONE = "new", "running", "done"


def read(workdir: PathLike) -> dict[str, Any]:
    """Returns the content of a run's file; {} if there is none."""
    path = pathlib.Path(workdir) / FILE
    return json.loads(path.read_text()) if path.exists() else {}


def write(workdir: PathLike, content: Mapping[str, Any]) -> None:
    """Replaces the file, atomically."""
    atomic.write_text(pathlib.Path(workdir) / FILE, json.dumps(content, indent=2) + "\n")


def change(workdir: PathLike, **values: Any) -> None:
    """Replaces some values of the file, such as the state."""
    write(workdir, read(workdir) | values)


def settings_of(workdir: PathLike) -> dict[str, Any]:
    """Returns the settings of a run; raises FileNotFoundError if the directory has no run."""
    if content := read(workdir):
        return content["settings"]
    raise FileNotFoundError(f"{workdir} has no {FILE}: give the --workdir of a run")


def differences(
    old: Mapping[str, Any], new: Mapping[str, Any], may_differ: tuple[str, ...] = ()
) -> list[str]:
    """Returns a line for each value in which two nested mappings of settings differ, except `may_differ`.

    `may_differ` has dotted names, or those of whole sections.
    """
    # As JSON, which has no tuples.
    old, new = (
        traverse_util.flatten_dict(json.loads(json.dumps(values)), sep=".") for values in (old, new)
    )
    return [
        f"{name}: {old.get(name)!r} there, {new.get(name)!r} now"
        for name in sorted({*old, *new})
        if old.get(name) != new.get(name) and not {name, name.split(".")[0]} & set(may_differ)
    ]
