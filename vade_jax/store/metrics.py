"""metrics.jsonl: one JSON line a step, the only file that figures and summaries read.

A line is {"step": 12, "actor/grad_norm": 0.31, ...}. A value that is not finite is written as null
(JSON has no NaN) and read as NaN. A step whose line was cut short by a crash is dropped when the
run resumes, with a count in the log.
"""

import json
import logging
import math
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax import atomic
from vade_jax.store import boards

Record = dict[str, Any]
PathLike = str | os.PathLike[str]

FILE = "metrics.jsonl"
ROLLOUTS = "vade/rollouts_total"
_VALIDATION = re.compile(r"val/(?P<set>.+)/acc/mean@(?P<samples>\d+)")


class Writer:
    """Appends to metrics.jsonl, one per run: make it in process 0 only."""

    def __init__(
        self,
        workdir: PathLike,
        *,
        tensorboard: bool = False,
        wandb: str = "",
        config: Mapping[str, Any] | None = None,
    ):
        """Opens a run directory, a new or an earlier one.

        Args:
            workdir: the run directory.
            tensorboard: write for TensorBoard as well.
            wandb: the Weights & Biases project that gets the numbers as well; empty: none.
            config: of the run, for W&B to show.
        """
        self.path = pathlib.Path(workdir) / FILE
        self._boards: list[Any] = [boards.TensorBoard(workdir)] if tensorboard else []
        self._boards += (
            [boards.WeightsAndBiases(workdir, wandb, config or {})] if wandb else []
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if self.path.exists():
            self.truncate_after(math.inf)  # a half-written line must not be continued

    def write(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Appends one line; values are numbers or scalar arrays."""
        values = {name: _number(name, value) for name, value in metrics.items()}
        with self.path.open("a") as file:
            file.write(
                json.dumps({"step": int(step), **values}, allow_nan=False) + "\n"
            )
        for board in self._boards:
            board.write(step, values)

    def truncate_after(self, step: float) -> int:
        """Drops the lines of later steps, which a resumed run makes again; returns how many.

        The file is replaced at once: a crash in the middle leaves the old one.
        """
        if not self.path.exists():
            return 0
        records, num_cut = scan(self.path)
        kept = [record for record in records if record["step"] <= step]
        num_dropped = len(records) - len(kept) + num_cut
        if num_dropped:
            text = "".join(json.dumps(record) + "\n" for record in kept)
            atomic.write_text(self.path, text, fsync=True)
            logging.info("dropped %d lines of %s", num_dropped, self.path)
        return num_dropped

    def close(self) -> None:
        for board in self._boards:
            board.close()


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

    Only a last line without its newline can be half-written; any other bad line is an error.
    """
    *lines, tail = pathlib.Path(path).read_bytes().split(b"\n")
    if tail:
        logging.warning("%s: 1 half-written line at the end ignored", path)
    records = [_record(line, f"{path}:{i + 1}") for i, line in enumerate(lines)]
    return records, int(bool(tail))


def column(records: Sequence[Record], name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns (steps, values) of the lines that have `name`; null becomes NaN."""
    present = [record for record in records if name in record]
    steps = np.array([record["step"] for record in present], np.int64)
    return steps, np.array([record[name] for record in present], np.float64)


def rollouts_at(records: Sequence[Record], steps: np.ndarray) -> np.ndarray:
    """Returns the rollouts spent up to each step: the last count known, 0 before the first."""
    known, totals = column(records, ROLLOUTS)
    place = np.searchsorted(known, steps, side="right")
    return np.concatenate([[0.0], totals])[place]


def validation_names(records: Sequence[Record]) -> list[str]:
    """Returns one `val/<set>/acc/mean@k` per validation set, that with the most samples."""
    best: dict[str, tuple[int, str]] = {}
    for name in {name for record in records for name in record}:
        if match := _VALIDATION.fullmatch(name):
            entry = (int(match["samples"]), name)
            best[match["set"]] = max(entry, best.get(match["set"], entry))
    return [best[key][1] for key in sorted(best)]


def validation(records: Sequence[Record]) -> tuple[np.ndarray, np.ndarray]:
    """Returns (steps, accuracy), the plain mean over the validation sets."""
    names = validation_names(records)
    complete = [
        {"step": record["step"], "mean": np.mean([_value(record, n) for n in names])}
        for record in records
        if names and all(name in record for name in names)
    ]
    return column(complete, "mean")


def _value(record: Record, name: str) -> float:
    return math.nan if record[name] is None else record[name]


def _number(name: str, value: Any) -> float | int | None:
    """Returns a JSON number, None if not finite."""
    if np.ndim(value) or isinstance(value, str | bytes):
        raise ValueError(f"metric {name} is {value!r}; give one number a step")
    value = np.asarray(value).item()
    return value if math.isfinite(value) else None


def _record(line: bytes, where: str) -> Record:
    try:
        record = json.loads(line)
        record["step"] = int(record["step"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{where} is no metrics line ({line[:40]!r}...); delete that line"
        ) from error
    return record
