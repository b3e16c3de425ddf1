"""Names on the Hugging Face hub become commits, before a run writes down its settings."""

import contextlib
import dataclasses
import json
import pathlib

from vade_jax import settings
from vade_jax.data import hub
from vade_jax.trainer import processes

FIELDS = {"model.checkpoint": "model", "data.train": "dataset", "data.validation": "dataset"}


def pin(run: settings.Run, workdir: str) -> settings.Run:
    """Returns the run with the commit of every name; one that goes on keeps those it began with.

    Raises:
        ValueError: a name is unknown, or the hub cannot be reached.
    """
    pinned = processes.on_leader(lambda: _pinned(run, workdir))
    for field, value in pinned.items():
        section, _, name = field.partition(".")
        changed = dataclasses.replace(getattr(run, section), **{name: value})
        run = dataclasses.replace(run, **{section: changed})
    return run


def _pinned(run: settings.Run, workdir: str) -> dict[str, str]:
    path = pathlib.Path(workdir) / "config.json"
    begun = {}
    if path.exists():
        with contextlib.suppress(ValueError):  # said better when the directory is opened
            begun = json.loads(path.read_text())
    found = {}
    for field, kind in FIELDS.items():
        section, _, name = field.partition(".")
        text = getattr(getattr(run, section), name)
        try:
            found[field] = hub.pin(text, kind, begun.get(section, {}).get(name, ""))
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from error
        if found[field] != text:
            print(f"{field}: {found[field]}")
    return found
