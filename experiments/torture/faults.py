"""The faults that can hit a running program, and when: drawn from a seed, so that they can be repeated.

A moment is defined by what is in the run directory by then, for example the first save in progress. The run
without a fault measures the time between two moments; a fault comes after a share of that time.
"""

import dataclasses
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

KILL, TERMINATE, INTERRUPT = "SIGKILL", "SIGTERM", "SIGINT twice"
FULL, READ_ONLY = "disk full", "no permission to write"
TRUNCATE, FLIP = "file cut short", "byte changed"
CLOCK, SECOND = "clock moved", "second run"
SIGNALS = (KILL, TERMINATE, INTERRUPT)
DISK = (FULL, READ_ONLY)
DAMAGE = (TRUNCATE, FLIP)  # after a SIGKILL
KINDS = (*SIGNALS, *DISK, *DAMAGE, CLOCK, SECOND)

HOUR = 3600
JUMPS = (-24 * HOUR, -HOUR, HOUR, 24 * HOUR)  # of the clock, in seconds

Moments = Mapping[str, Callable[[pathlib.Path], bool]]
START = "start"


def _any(*patterns: str) -> Callable[[pathlib.Path], bool]:
    return lambda workdir: any(any(workdir.glob(pattern)) for pattern in patterns)


# The life of a run, in order; a predicate is true from its moment on.
OF_TRAINING: Moments = {
    START: lambda workdir: True,
    "warm start": _any("tiny_model/config.json"),
    "first save": _any("checkpoints/*"),
    "second save": _any("checkpoints/2*"),
    "later saves": _any("checkpoints/3*"),
    "report": _any("report.html"),
    "export": _any(".policy.*", "policy/*"),
}
OF_OTHERS: Moments = {START: OF_TRAINING[START]}
END = "end"  # the program has ended without a fault


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault of one trial."""

    seed: int
    number: int  # of the trial
    kind: str
    moment: str
    share: float  # of the time until the next moment
    choice: int  # the seed of everything else that is drawn: a file, a byte, a process

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.choice)

    def __str__(self) -> str:
        when = self.moment if self.moment == END else f"{self.moment} + {self.share:.0%}"
        return f"--seed={self.seed} --first={self.number}: {self.kind} at {when}"


def draw(seed: int, number: int, kinds: Sequence[str], moments: Sequence[str]) -> Fault:
    """Returns the fault of a trial: kinds take turns, the rest is drawn from `seed` and `number`."""
    rng = np.random.default_rng([seed, number])
    kind = kinds[number % len(kinds)]
    # Damage can also hit a run that has ended.
    names = [*moments, END] if kind in DAMAGE else moments
    moment = str(rng.choice(names))
    return Fault(seed, number, kind, moment, float(rng.random()), int(rng.integers(2**31)))


def damage(workdir: pathlib.Path, fault: Fault) -> pathlib.Path | None:
    """Cuts one file short, or changes one byte of it; returns the file, or None if all are empty."""
    rng = fault.rng()
    files = sorted(p for p in workdir.rglob("*") if p.is_file() and p.stat().st_size)
    if not files:
        return None
    path = files[rng.integers(len(files))]
    size = path.stat().st_size
    if fault.kind == TRUNCATE:
        os.truncate(path, int(rng.integers(size)))
        return path
    with path.open("r+b") as file:
        file.seek(int(rng.integers(size)))
        old = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([old ^ int(rng.integers(1, 256))]))
    return path
