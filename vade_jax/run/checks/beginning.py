"""Checks that a resumed run has the data and model it started with, and metrics up to its checkpoint."""

import pathlib
from collections.abc import Mapping
from typing import Any

from vade_jax.data import hub
from vade_jax.models.qwen import files
from vade_jax.store import checkpoints, metrics
from vade_jax.trainer import processes


def check_reaches(path: pathlib.Path, step: int) -> None:
    """Raises ValueError unless the last line of metrics is of `step`; a new run has no line at step 0."""
    records = metrics.scan(path)[0] if path.exists() else []
    if step and (not records or records[-1]["step"] < step):
        raise ValueError(
            f"{path} ends before step {step}, which the checkpoint has: it was cut short; restore it from "
            "a copy, or delete the checkpoints that it does not reach"
        )


def check_beginning(
    saved: checkpoints.Checkpointer,
    step: int,
    counters: Mapping[str, Any],
    items: Mapping[str, int],
) -> None:
    """Raises ValueError if a run started with other items or another model; warns about other pictures."""
    has_other = lambda name: counters.get(name) != items.get(name)
    back = "give the data that it began with, or another --workdir"
    for name, setting in {"items": "data.train", "questions": "data.validation"}.items():
        if has_other(name):
            raise ValueError(
                f"the data changed: {setting} has other usable rows than when this run began, or in another "
                f"order: {back}"
            )
    if has_other("details"):
        raise ValueError(
            "the data changed: rows of data.train or data.validation have another kind, other choices or "
            f"other columns than when this run began: {back}"
        )
    if has_other("pictures"):
        # Not an error: another version of Pillow may resize pictures to other bytes.
        print(
            "WARNING: the data changed: pictures of data.train or data.validation are not, to the byte, what "
            "this run began with: it goes on with what is there"
        )
    started = counters.get("start", 0)
    if started and started != start_of(config := saved.config(step)):
        raise ValueError(
            f"model.checkpoint={config['model']['checkpoint']} is another model than when this run began, and "
            "what it learned belongs to that one: put that one back, or give another --workdir"
        )


def start_of(config: Mapping[str, Any]) -> int:
    """Returns the identity of the directory that a run starts from.

    0 if the name is enough: a commit on the hub, or a model that the run makes itself.
    """
    checkpoint = config["model"]["checkpoint"]
    if not checkpoint or hub.parse(checkpoint):
        return 0
    return processes.on_leader(lambda: files.identity(checkpoint))
