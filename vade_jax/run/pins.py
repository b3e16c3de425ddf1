"""Names on the Hugging Face hub become commits, before a run writes down its settings."""

import contextlib
import dataclasses
import json
import operator
import pathlib
from collections.abc import Mapping

from vade_jax import settings
from vade_jax.data import hub
from vade_jax.trainer import processes

FIELDS = {"model.checkpoint": "model", "data.train": "dataset", "data.validation": "dataset"}


def pin(run: settings.Run, workdir: str) -> settings.Run:
    """Returns the run with the commit of every name; one that goes on keeps those it began with.

    Raises:
        ValueError: a name is unknown, or the hub cannot be reached.
    """
    return put(run, processes.on_leader(lambda: _pinned(run, workdir)))


def names(run: settings.Run) -> dict[str, str]:
    """Returns what the fields say that may be names on the hub."""
    return {field: operator.attrgetter(field)(run) for field in FIELDS}


def put(run: settings.Run, names: Mapping[str, str]) -> settings.Run:
    """Returns the run with other names; see `names`."""
    for field, value in names.items():
        section, _, name = field.partition(".")
        changed = dataclasses.replace(getattr(run, section), **{name: value})
        run = dataclasses.replace(run, **{section: changed})
    return run


def _pinned(run: settings.Run, workdir: str) -> dict[str, str]:
    path = pathlib.Path(workdir) / "config.json"
    begun = settings.Run()
    if path.exists():
        # What is no config of a run is said better when the directory is opened.
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            begun = settings.Run.from_dict(json.loads(path.read_text()))
    found = {}
    for field, text in names(run).items():
        try:
            found[field] = hub.pin(text, FIELDS[field], names(begun)[field])
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from error
        if found[field] != text:
            print(f"{field}: {found[field]}")
    return found
