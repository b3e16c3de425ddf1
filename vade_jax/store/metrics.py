"""metrics.jsonl: one JSON line a step, the only file that figures and summaries read.

A line is {"step": 12, "actor/grad_norm": 0.31, ..., "crc32": 2768625435}. A value that is not finite is
written as null (JSON has no NaN). The last number is the checksum of the line before it. A crash can cut
the last line short: a resumed run drops it and counts it in the log. TensorBoard and Weights & Biases can get
the same numbers.
"""

import json
import logging
import math
import pathlib
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax import atomic
from vade_jax.types import PathLike

Record = dict[str, Any]

FILE = "metrics.jsonl"
CHECKSUM = "crc32"  # always the last name in a line
_MARK = f', "{CHECKSUM}": '.encode()


# ------------------------------------------------------------------------------ writing
class Writer:
    """Appends to metrics.jsonl. A run has one writer: with several processes, only process 0 makes it."""

    def __init__(
        self,
        workdir: PathLike,
        *,
        tensorboard: bool = False,
        wandb: str = "",
        config: Mapping[str, Any] | None = None,
    ):
        """Opens a run directory, new or to be resumed.

        `wandb` is the Weights & Biases project that gets the same numbers, and `config` the settings that it
        shows.

        Raises:
            ImportError: TensorBoard or W&B is asked for and not installed.
            ValueError: W&B refuses, for example without a login.
        """
        self.path = pathlib.Path(workdir) / FILE
        self._boards: list[TensorBoard | WeightsAndBiases] = []
        if tensorboard:
            self._boards.append(TensorBoard(workdir))
        if wandb:
            self._boards.append(WeightsAndBiases(workdir, wandb, config or {}))
        self.path.parent.mkdir(parents=True, exist_ok=True)

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Appends one line; values are numbers or scalar arrays."""
        values = {name: _number(name, value) for name, value in metrics.items()}
        text = line({"step": int(step), **values})
        with self.path.open("ab") as file:
            file.write(text)
        self._show(int(step), values)

    def add(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Adds values to the last line, which must be of this step; values of the same name are replaced.

        Raises:
            ValueError: the last line is of another step.
        """
        records, _ = scan(self.path)
        if not records or records[-1]["step"] != step:
            raise ValueError(f"{self.path} does not end with step {step}: it has no line to add to")
        records[-1] |= {name: _number(name, value) for name, value in metrics.items()}
        self._replace(records)
        # All of them: TensorBoard hides the points that a step had before a resumed run wrote it.
        self._show(step, {name: x for name, x in records[-1].items() if name != "step"})

    def resume_after(self, step: int) -> None:
        """Drops the lines of later steps, and a half-written one; after step 0 all lines.

        The file is replaced atomically: a crash leaves the old one.

        Raises:
            ValueError: the file ends before `step`.
        """
        records = scan(self.path)[0] if self.path.exists() else []
        kept = [record for record in records if step and record["step"] <= step]
        if step and (not kept or kept[-1]["step"] < step):
            raise ValueError(
                f"{self.path} ends before step {step}, which the checkpoint has: it was cut short; restore it from "
                "a copy, or delete the checkpoints that it does not reach"
            )
        if self.path.exists():
            self._replace(kept)

    def close(self) -> None:
        """Closes the boards; the file is complete after every `write`."""
        for board in self._boards:
            board.close()

    def _replace(self, records: Sequence[Record]) -> None:
        content = b"".join(map(line, records))
        atomic.write_text(self.path, content.decode(), fsync=True)

    def _show(self, step: int, values: Record) -> None:
        """Sends the values of a line, without its step, to the boards."""
        shown = {name: math.nan if x is None else x for name, x in values.items()}
        for board in self._boards:
            board.write(step, shown)


def line(record: Record) -> bytes:
    """Returns the line of a record, with its checksum."""
    text = json.dumps(record, allow_nan=False).encode()
    return text[:-1] + _MARK + str(zlib.crc32(text)).encode() + b"}\n"


def _number(name: str, value: Any) -> float | int | None:
    """Returns a JSON number; None if the value is not finite."""
    if np.ndim(value) or isinstance(value, str | bytes):
        raise ValueError(f"metric {name} is {value!r}; give one number a step")
    value = np.asarray(value).item()
    return value if math.isfinite(value) else None


# ------------------------------------------------------------------------------ boards
class TensorBoard:
    """Writes TensorBoard files to `workdir`/tensorboard."""

    def __init__(self, workdir: PathLike):
        try:
            import tensorboardX
        except ImportError as error:
            raise ImportError(
                "tensorboard=True needs tensorboardX: in the repository, pip install '.[tracking]'"
            ) from error
        self._package, self._board = tensorboardX, None
        self._folder = pathlib.Path(workdir) / "tensorboard"

    def write(self, step: int, values: Mapping[str, float]) -> None:
        if self._board is None:
            # Only the first step says where a resumed run starts: its earlier points of that step
            # and later ones are hidden.
            self._board = self._package.SummaryWriter(str(self._folder), purge_step=step)
        for name, value in values.items():
            self._board.add_scalar(name, value, step)
        self._board.flush()

    def close(self) -> None:
        if self._board is not None:
            self._board.close()


class WeightsAndBiases:
    """Writes to a run of a W&B project; a resumed job continues the same run.

    `step` is a metric and the x axis of all others. W&B's own counter would refuse the steps that a resumed
    run takes again; with this axis their points fall on the earlier ones. WANDB_MODE=offline writes only to
    `workdir`/wandb, for `wandb sync --append`.
    """

    def __init__(self, workdir: PathLike, project: str, config: Mapping[str, Any]):
        try:
            import wandb
        except ImportError as error:
            raise ImportError(f"wandb={project!r} needs the package: pip install wandb") from error
        path = pathlib.Path(workdir).absolute()
        run_id = path / "wandb" / "run_id"  # stored so that a resumed job finds its run
        if not run_id.exists():
            atomic.write_text(run_id, uuid.uuid4().hex[:12])
        try:
            self._run = wandb.init(
                project=project,
                name=path.name,
                id=run_id.read_text().strip(),
                resume="allow",
                dir=str(path),
                config=dict(config),
                settings=wandb.Settings(console="off"),
            )
        except wandb.Error as error:
            raise ValueError(
                f"wandb={project!r}: {str(error).rstrip('.')}; run `wandb login`, set WANDB_MODE=offline, or "
                'leave it out with --config.wandb=""'
            ) from error
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log({"step": step, **values})

    def close(self) -> None:
        self._run.finish()


# ------------------------------------------------------------------------------ reading
def read(workdir: PathLike) -> list[Record]:
    """Returns the records of a run directory, in the order they were written."""
    path = pathlib.Path(workdir) / FILE
    if not path.is_file():
        raise FileNotFoundError(
            f"{workdir} is not a run directory: it has no {FILE}; give the --workdir of "
            "a run that has made a step"
        )
    return scan(path)[0]


def scan(path: PathLike) -> tuple[list[Record], int]:
    """Returns the records of a file and the number of half-written lines (0 or 1).

    Raises:
        ValueError: a line is not a record, or its checksum is wrong. Only a last line without a newline
            counts as half-written.
    """
    *lines, tail = pathlib.Path(path).read_bytes().split(b"\n")
    if tail:
        logging.warning("%s: 1 half-written line at the end ignored", path)
    records = []
    for number, found in enumerate(lines, start=1):
        try:
            record = json.loads(found)
            record["step"] = int(record["step"])
            text, _, _ = found.rpartition(_MARK)
            if record.pop(CHECKSUM) != zlib.crc32(text + b"}"):
                raise ValueError("another checksum")
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path}:{number} is damaged or no metrics line ({found[:40]!r}...); restore the file "
                "from a copy, or delete that line"
            ) from error
        records.append(record)
    return records, int(bool(tail))
