"""metrics.jsonl: one JSON line a step, the only file that figures and summaries read.

A line is {"step": 12, "actor/grad_norm": 0.31, ...}. A value that is not finite is written as null (JSON has
no NaN). A kill can truncate the last line: readers ignore it, and a resumed run drops it. Weights &
Biases can get the same numbers.
"""

import json
import math
import pathlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax import atomic
from vade_jax.types import PathLike

Record = dict[str, Any]

FILE = "metrics.jsonl"


class Writer:
    """Appends to metrics.jsonl. A run has one writer: with several processes, only process 0 makes it."""

    def __init__(
        self, workdir: PathLike, *, wandb: str = "", config: Mapping[str, Any] | None = None
    ):
        """Opens a run directory; a Weights & Biases project `wandb` gets the same numbers and `config`."""
        self.path = pathlib.Path(workdir) / FILE
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._wandb = _wandb(workdir, wandb, config or {}) if wandb else None

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Appends one line; values are numbers or scalar arrays."""
        record = {"step": step} | _numbers(metrics)
        with self.path.open("a") as file:
            file.write(line(record))
        self._show(record)

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Adds values to the last line, which is of this step; values of the same name are replaced."""
        *records, last = read(self.path.parent)
        assert last["step"] == step
        values = _numbers(metrics)
        self._replace([*records, last | values])
        self._show({"step": step} | values)

    def resume_after(self, step: int) -> None:
        """Drops the lines of later steps, and a half-written one; after step 0 all lines.

        The file is replaced atomically: a crash leaves the old one.

        Raises:
            ValueError: the file ends before `step`.
        """
        records = read(self.path.parent) if self.path.exists() else []
        kept = [record for record in records if step and record["step"] <= step]
        if step and (not kept or kept[-1]["step"] < step):
            raise ValueError(
                f"{self.path} ends before step {step}, which the checkpoint has: it was cut short; restore it from "
                "a copy, or delete the checkpoints that it does not reach"
            )
        self._replace(kept)

    def close(self) -> None:
        """Ends the run of Weights & Biases; the file is complete after every `write`."""
        if self._wandb is not None:
            self._wandb.finish()

    def _replace(self, records: Sequence[Record]) -> None:
        atomic.write_text(self.path, "".join(map(line, records)))

    def _show(self, record: Record) -> None:
        if self._wandb is not None:
            self._wandb.log({name: math.nan if x is None else x for name, x in record.items()})


def line(record: Record) -> str:
    """Returns the line of a record."""
    return json.dumps(record, allow_nan=False) + "\n"


def _numbers(metrics: Mapping[str, Any]) -> Record:
    """Returns the values as JSON's numbers, None where one is not finite."""
    values = {name: np.asarray(value).item() for name, value in metrics.items()}
    return {name: x if math.isfinite(x) else None for name, x in values.items()}


def read(workdir: PathLike) -> list[Record]:
    """Returns the records of a run directory, in the order they were written."""
    # After the last newline is a truncated line.
    *lines, _ = (pathlib.Path(workdir) / FILE).read_bytes().split(b"\n")
    return [json.loads(text) for text in lines]


def _wandb(workdir: PathLike, project: str, config: Mapping[str, Any]) -> Any:
    """Returns a run of a W&B project; a resumed job continues the same run.

    `step` is a metric and the x axis of all others. W&B's own counter would refuse the steps that a resumed
    run takes again; with this axis their points fall on the earlier ones.
    """
    import wandb

    path = pathlib.Path(workdir).absolute()
    run_id = path / "wandb" / "run_id"  # stored so that a resumed job finds its run
    if not run_id.exists():
        atomic.write_text(run_id, uuid.uuid4().hex[:12])
    run = wandb.init(
        project=project,
        name=path.name,
        id=run_id.read_text(),
        resume="allow",
        dir=str(path),
        config=dict(config),
    )
    run.define_metric("step")
    run.define_metric("*", step_metric="step")
    return run
