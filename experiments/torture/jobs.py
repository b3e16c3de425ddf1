"""The commands that are tortured, and how a trial starts and kills them."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence

from experiments.torture import faults
from vade_jax.rollout.vllm import process

COMMANDS = ("train", "sweep", "evaluate", "build_data", "simulate")
TARGET = "built"  # the directory that build_data makes, which must not exist before
DONE = " is done. "  # printed by a run that finds nothing to do


@dataclasses.dataclass(frozen=True)
class Job:
    """A command with its arguments; a run may have several processes that train together."""

    command: str
    arguments: Sequence[str]
    processes: int = 1
    compiled: str = ""  # the directory of compiled programs, shared by all trials

    def __post_init__(self):
        if self.processes > 1 and self.command != "train":
            raise ValueError(
                f"--processes={self.processes} is of --command=train: two of {self.command} would "
                "be two jobs in one directory"
            )

    @property
    def moments(self) -> faults.Moments:
        return faults.OF_TRAINING if self.command == "train" else faults.OF_OTHERS

    def kinds(self) -> Sequence[str]:
        """Returns the faults that can hit the job; commands other than `train` get only signals."""
        if self.command != "train":
            return faults.SIGNALS
        return faults.KINDS if self.processes == 1 else (faults.KILL, faults.TERMINATE)

    def is_done(self, workdir: pathlib.Path) -> bool:
        """Returns whether a start would be refused because the job's result already exists."""
        return self.command == "build_data" and (workdir / TARGET).exists()

    def __str__(self) -> str:
        config = os.path.basename(self.arguments[0]).replace(".py", "")
        together = f", {self.processes} processes" if self.processes > 1 else ""
        return f"{self.command} {config}{together}"

    def start(
        self, workdir: pathlib.Path, log: pathlib.Path, clock: Sequence[str] = ()
    ) -> "Running":
        """Starts the job; `clock` has the first two arguments of moved_clock.py, if the clock jumps."""
        module = f"experiments.{self.command}"
        place = f"--workdir={workdir}"
        if self.command == "build_data":
            place = f"--target={workdir / TARGET}"
        called = ("experiments.torture.moved_clock", *clock, module) if clock else (module,)
        command = [sys.executable, "-m", *called, *self.arguments, place]
        environment = {
            "JAX_PLATFORMS": "cpu",
            "JAX_COMPILATION_CACHE_DIR": self.compiled,
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            # Little optimization: otherwise a tiny job would spend nearly all its time compiling.
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
            "TQDM_MININTERVAL": "30",
        } | os.environ
        members, address = [], f"127.0.0.1:{process.free_port()}"
        with log.open("ab") as file:
            for i in range(self.processes):
                others = [
                    f"--coordinator_address={address}",
                    f"--num_processes={self.processes}",
                    f"--process_id={i}",
                ]
                members.append(
                    subprocess.Popen(
                        command + (others if self.processes > 1 else []),
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=file,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        return Running(members, log, log.stat().st_size)


class Running:
    """The processes of a started job, and their output."""

    def __init__(self, members: Sequence[subprocess.Popen], log: pathlib.Path, said_before: int):
        self.members, self._log, self._before = members, log, said_before

    def is_over(self) -> bool:
        return all(member.poll() is not None for member in self.members)

    def wait(self, limit: float) -> list[int]:
        """Returns the exit codes.

        Raises:
            TimeoutError: the job still ran after `limit` seconds, and was killed.
        """
        deadline = time.monotonic() + limit
        while not self.is_over():
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"did not end within {limit:.0f} s")
            time.sleep(0.05)
        return [member.returncode for member in self.members]

    def send(self, number: int, member: int = 0) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.members[member].send_signal(number)

    def kill(self) -> None:
        """Kills all processes of the job and all that they have started."""
        for member in self.members:
            for pid in (*_descendants(member.pid), member.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            member.wait()

    def said(self) -> str:
        """Returns what was printed since the start."""
        with self._log.open("rb") as file:
            file.seek(self._before)
            return file.read().decode(errors="replace")


def error_line(said: str) -> str:
    """Returns the last line of a job's output if it is an error, else "".

    Threads of libraries may print anything before that line.
    """
    lines = [line.strip() for line in said.replace("\r", "\n").splitlines() if line.strip()]
    return lines[-1] if lines and lines[-1].startswith("error: ") else ""


def _descendants(pid: int) -> Iterator[int]:
    """Yields all descendants of a process, children before their parents (Linux)."""
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in path.read_text().split():
                yield from _descendants(int(child))
                yield int(child)
