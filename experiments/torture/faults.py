"""The faults that can hit a run, and when: drawn from a seed, so that they can be repeated."""

import contextlib
import os
import pathlib
import subprocess
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

KILL, TERMINATE, INTERRUPT = "SIGKILL", "SIGTERM", "SIGINT twice"
FULL, FLIP = "disk full", "byte changed"  # FLIP comes after a SIGKILL
# Only root on Linux can mount a disk that is full.
KINDS = (KILL, TERMINATE, INTERRUPT, FLIP, *[FULL] * (os.geteuid() == 0))
# The life of a run, in order: the files that exist from each moment on.
MOMENTS = {
    "start": "run",
    "first model": "run/tiny_model/config.json",
    "first save": "run/checkpoints/*",
    "second save": "run/checkpoints/2*",
    "later saves": "run/checkpoints/3*",
    "report": "run/report.html",
    "export": "run/*policy*/*",
}
DISK_MB = 256
LATER_S = 3.0  # the fault comes up to so many seconds after its moment


class Fault(NamedTuple):
    """One fault of one trial."""

    seed: int
    number: int  # of the trial
    kind: str
    moment: str
    later: float  # seconds
    choice: int  # the seed of everything else that is drawn: a file, a byte

    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.choice)

    def __str__(self) -> str:
        when = f"{self.moment} + {self.later:.1f} s"
        return f"seed {self.seed}, trial {self.number}: {self.kind} at {when}"


def draw(seed: int, number: int) -> Fault:
    """Returns the fault of a trial: kinds take turns, the rest is drawn from `seed` and `number`."""
    rng = np.random.default_rng([seed, number])
    moment, later = str(rng.choice([*MOMENTS])), float(LATER_S * rng.random())
    return Fault(seed, number, KINDS[number % len(KINDS)], moment, later, int(rng.integers(2**31)))


def damage(workdir: pathlib.Path, fault: Fault) -> pathlib.Path | None:
    """Changes one byte of one file of the newest checkpoint; returns the file, or None if there is none."""
    rng = fault.rng()
    steps = sorted((workdir / "checkpoints").glob("[0-9]"))
    paths = steps[-1].rglob("*") if steps else ()
    files = sorted(path for path in paths if path.is_file() and path.stat().st_size)
    if not files:
        return None
    path = files[rng.integers(len(files))]
    content = bytearray(path.read_bytes())
    content[rng.integers(len(content))] ^= int(rng.integers(1, 256))
    path.write_bytes(content)
    return path


@contextlib.contextmanager
def small_disk(root: pathlib.Path) -> Iterator[None]:
    """Mounts a disk in memory at `root`, an empty directory; afterwards it is gone with its files."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(root)], check=True
    )
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(root)], check=True)


def fill(disk: pathlib.Path, free: int) -> pathlib.Path:
    """Leaves `free` bytes free on a disk; returns the file that takes the rest."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 16))
    os.truncate(filler, max(0, filler.stat().st_size - free))
    return filler
