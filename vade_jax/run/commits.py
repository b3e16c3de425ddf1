"""Names on the Hugging Face hub become commits, before a run writes down its settings."""

import json
import pathlib
from collections.abc import Mapping

from vade_jax import fields
from vade_jax.data import hub
from vade_jax.trainer import processes

FIELDS = {"model.checkpoint": "model", "data.train": "dataset", "data.validation": "dataset"}


def names(run: fields.Section) -> dict[str, str]:
    """Returns the values of the settings that may be names on the hub."""
    return {field: fields.value(run, field) for field in FIELDS}


def pin(names: Mapping[str, str], workdir: str) -> dict[str, str]:
    """Returns the names with their commits; a resumed run keeps the commits that it started with.

    Raises:
        ValueError: a name is unknown, or the hub cannot be reached.
    """
    return processes.on_leader(lambda: _pinned(names, workdir))


def _pinned(names: Mapping[str, str], workdir: str) -> dict[str, str]:
    begun, found = _begun(workdir), {}
    for field, text in names.items():
        try:
            found[field] = hub.pin(text, FIELDS[field], begun.get(field, ""))
        except ValueError as error:
            raise ValueError(f"{field}: {error}") from error
        if found[field] != text:
            print(f"{field}: {found[field]}")
    return found


def _begun(workdir: str) -> dict[str, str]:
    """Returns the names that the run in `workdir` started with; empty if there is no run.

    A file that is not the config of a run is reported later, when the directory is opened.
    """
    path = pathlib.Path(workdir) / "config.json"
    try:
        config = json.loads(path.read_text()) if path.exists() else {}
    except ValueError:
        return {}
    found = {}
    for field in FIELDS:
        section, name = field.split(".")
        values = config.get(section) if isinstance(config, dict) else None
        found[field] = str(values.get(name, "")) if isinstance(values, dict) else ""
    return found
