"""Checks the directories that a run writes to: they must be free or its own."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vade_jax import fields, samplers, settings
from vade_jax.models.qwen import files
from vade_jax.store import metrics

EXPORTED = ("policy", "adapter")  # what a finished run leaves


def check_is_free(workdir: str) -> None:
    """Raises ValueError if a new run would replace files that no run made.

    For example the checkpoint that it starts from: `model.checkpoint` may be in its directory.
    """
    for name in (*EXPORTED, "checkpoints"):
        place = os.path.join(workdir, name)
        if os.path.isfile(place) or (os.path.isdir(place) and os.listdir(place)):
            raise ValueError(
                f"{place} is there and no run's: a run would replace it. Give a --workdir of its own"
            )


def has_checkpoint(workdir: str | os.PathLike) -> bool:
    """Returns whether the run in a directory has a checkpoint to go on from."""
    return any(path.name.isdigit() for path in pathlib.Path(workdir).glob("checkpoints/*"))


def has_a_step(workdir: str | os.PathLike) -> bool:
    """Returns whether the run in a directory has taken a step: records or arrays of it exist."""
    place = pathlib.Path(workdir)
    if has_checkpoint(workdir):
        return True
    if any((place / name / files.CONFIG).exists() for name in EXPORTED):
        return True
    records = metrics.read(place) if (place / metrics.FILE).exists() else []
    return any(record["step"] for record in records)


def check_is_of_run(path: pathlib.Path) -> None:
    """Raises ValueError unless a config.json is a run's: a Hugging Face checkpoint has one, too."""
    with contextlib.suppress(ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, dict) and {"num_steps", "selector"} <= found.keys():
            return
    raise ValueError(
        f"{path} is no run's: give a --workdir of its own, which need not be there yet"
    )


def check_same(
    path: str | os.PathLike,
    wanted: Mapping[str, Any],
    may_change: Sequence[str] = (),
    defaults: fields.Section | None = None,
) -> None:
    """Checks that a file, if it exists, has the same values, except in `may_change`.

    A field that the file lacks has its value in `defaults`: an earlier version did not have the field.

    Raises:
        ValueError: the file is unreadable, or has other values; names them.
    """
    path = pathlib.Path(path)
    if path.exists():
        try:
            found = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is not readable JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError(f"{path} holds no names and values: give another --workdir")
        if other := differing(found, wanted, may_change, defaults):
            raise ValueError(
                f"{path} is of another config ({'; '.join(other)}): give another "
                "--workdir or the old values"
            )


def differing(
    found: Mapping[str, Any],
    wanted: Mapping[str, Any],
    may_differ: Sequence[str] = (),
    defaults: fields.Section | None = None,
) -> list[str]:
    """Returns a line for each value in which two configs differ, except `may_differ`; see `check_same`."""
    if defaults is not None:
        found, wanted = (_with_options(filled(values, defaults)) for values in (found, wanted))
    return [
        f"{name}: {old!r} there, {new!r} now"
        for name, old, new in _differences(found, wanted)
        if not {name, name.split(".")[0]} & set(may_differ)
    ]


def filled(found: Mapping[str, Any], defaults: fields.Section) -> dict[str, Any]:
    """Returns the values of a file, completed with the defaults of missing fields."""
    values = json.loads(json.dumps(defaults.to_dict())) | dict(found)
    for name in defaults.to_dict():
        section = getattr(defaults, name)
        if isinstance(section, fields.Section) and isinstance(values[name], dict):
            values[name] = filled(values[name], section)
    return values


def _with_options(values: dict[str, Any]) -> dict[str, Any]:
    """Returns the settings with all options of their selector: an earlier version had fewer.

    Those of a selector in a user's file stay as they are.
    """
    selector = values.get("selector")
    if not isinstance(selector, dict) or selector.get("name") not in samplers.SAMPLERS:
        return values
    given = selector.get("options", {})
    defaults = json.loads(json.dumps(samplers.SAMPLERS[selector["name"]].options().to_dict()))
    # A damaged file may hold anything.
    options = defaults | given if isinstance(given, dict) else given
    return values | {"selector": selector | {"options": options}}


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yields the dotted name and both values of every field that differs."""
    for name in sorted(set(old) | set(new)):
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{prefix}{name}.")
        elif a != b:
            yield f"{prefix}{name}", a, b


def check_goes_on(workdir: str) -> None:
    """Checks that a run which has saved a step still has a checkpoint to go on from.

    Call it before config.json is replaced: the old one says how often the run saved.

    Raises:
        ValueError: it has none; a restart would replace what it has made.
    """
    if has_checkpoint(workdir):
        return
    records = metrics.read(workdir) if os.path.exists(os.path.join(workdir, metrics.FILE)) else []
    config = pathlib.Path(workdir, "config.json")
    found = json.loads(config.read_text()) if config.exists() else {}
    every = found.get("checkpoint", {}).get("every", settings.Checkpoint().every)
    # A run starts its second checkpoint only when the first is complete.
    has_saved = bool(records) and records[-1]["step"] > 2 * every
    if has_saved or os.path.exists(os.path.join(workdir, "policy", files.CONFIG)):
        raise ValueError(
            f"{workdir} has what a run has made and no checkpoint to go on from: put its checkpoints/ "
            "back, or give another --workdir"
        )
