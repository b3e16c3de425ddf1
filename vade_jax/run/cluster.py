"""The processes of a run: how they join, and how they end together.

With several hosts, every host runs the same command, with a run directory that all hosts see.
"""

import contextlib
import ctypes
import os
import pathlib
import re
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from typing import Any

import jax

from vade_jax.trainer import processes

START_TIMEOUT_S = 300  # for the slowest process to join
HEARTBEAT_TIMEOUT_S = 40  # without one, a process counts as gone; process 0 is missed at once
VISIBLE_TIMEOUT_S = 60.0  # until a new file is visible on all hosts
STOPPED = (
    "error: another process of this run has stopped{why}. Its own output says why. Start all of "
    "them again: the run resumes from its last checkpoint"
)
GONE = re.compile(
    r"gloo|nccl|coordination.?service|heartbeat|UNAVAILABLE|DEADLINE_EXCEEDED|barrier",
    re.IGNORECASE,
)
UNMET = (
    "error: the processes did not find each other{why}: start --num_processes of them within "
    f"{START_TIMEOUT_S} s, each with its own --process_id and all with the --coordinator_address "
    "of process 0, a port that is free there and that the others reach"
)
_kept = []  # C calls these, so Python must not collect them


# ------------------------------------------------------------------------------ starting
def join(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    distributed: bool = False,
) -> None:
    """Joins the other processes of the run, if there are any. Call it before any device is used.

    Give the first three arguments together; or give `distributed`, and the cluster's environment (SLURM,
    Kubernetes, Open MPI, a TPU pod) provides them. With neither, the run has one process.

    Raises:
        ValueError: some of the three are missing or wrong, or the environment does not provide them.
    """
    given: dict[str, Any] = {
        "coordinator_address": coordinator_address,
        "num_processes": num_processes,
        "process_id": process_id,
    }
    missing = [f"--{name}" for name, value in given.items() if value is None]
    if len(missing) == len(given):
        if not distributed:
            return
        given = {}
    elif missing:
        raise ValueError(
            f"{' and '.join(missing)} missing: give --coordinator_address, --num_processes and "
            "--process_id together, or --distributed alone where the cluster tells them"
        )
    else:
        address, count, number = given.values()
        if not (re.fullmatch(r".+:\d+", address) and 0 <= number < count):
            raise ValueError(
                f"--coordinator_address={address} --process_id={number}: give HOST:PORT, such as "
                f"10.0.0.1:8476, and a number from 0 to --num_processes - 1 = {count - 1}"
            )
    jax.config.update("jax_enable_preemption_service", False)  # SIGTERM: see StopSignal
    _on_abort_say(UNMET.format(why=""), 2)
    try:
        jax.distributed.initialize(
            **given,
            initialization_timeout=START_TIMEOUT_S,
            heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S,
        )
    except (ValueError, RuntimeError) as error:
        why = f" ({_first_line(error)})"
        raise ValueError(UNMET.format(why=why).removeprefix("error: ")) from error
    _on_abort_say(STOPPED.format(why=", or this one crashed: see above"), 1)


def only_leader_prints() -> None:
    """Silences stdout of all processes but the leader; stderr stays. Touches the devices."""
    if not processes.is_leader():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the end)


def wait_until_shared(path: str | os.PathLike) -> None:
    """Waits until this process sees what process 0 has written.

    Raises:
        ValueError: the file does not appear, so the hosts do not share the directory.
    """
    path, deadline = pathlib.Path(path), time.monotonic() + VISIBLE_TIMEOUT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise ValueError(
                f"process {jax.process_index()} does not see {path}, which process 0 has "
                "written: give a --workdir on a file system that all hosts share"
            )
        time.sleep(0.2)


# ------------------------------------------------------------------------------ ending
class StopSignal:
    """Becomes true after SIGTERM or Ctrl-C; the run then finishes its step, saves and ends.

    Any one of several processes may get the signal; all stop after the same step.
    """

    def __init__(self):
        self._stopped = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def __call__(self) -> bool:
        return processes.any_of(self._stopped)

    def _stop(self, number, frame):
        if self._stopped:
            raise KeyboardInterrupt  # the second signal does not wait
        self._stopped = True
        # Not print: the signal may have come in the middle of one. Who reads the output may have ended.
        with contextlib.suppress(OSError):
            os.write(2, b"\nstopping as soon as all is saved; Ctrl-C again stops at once\n")


@contextlib.contextmanager
def ends_together() -> Iterator[None]:
    """Makes a failing process exit at once, so that the others, which wait for it, notice.

    A JAX error about a lost process becomes one line.
    """
    try:
        yield
    except BaseException as error:
        is_clean = isinstance(error, SystemExit) and error.code in (None, 0)
        if not jax.distributed.is_initialized() or is_clean:
            raise
        code = _report(error)
        # A normal exit would wait minutes for the other processes.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _report(error: BaseException) -> int:
    """Prints what ended this process and returns its exit code."""
    if gone := _is_gone(error):
        print(STOPPED.format(why=f" ({_first_line(gone)})"), file=sys.stderr)
    elif isinstance(error, SystemExit):
        if isinstance(error.code, int):
            return error.code
        print(error.code, file=sys.stderr)
    elif isinstance(error, processes.Disagreement):
        print(f"error: {error}", file=sys.stderr)
    else:
        traceback.print_exception(error)
    return 1


def _is_gone(error: BaseException | None) -> BaseException | None:
    """Returns the JAX error about a lost process in the chain of causes, if there is one."""
    while error is not None:
        is_jax = isinstance(error, jax.errors.JaxRuntimeError)
        if is_jax and GONE.search(str(error)):
            return error
        error = error.__cause__ or error.__context__
    return None


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:200]


def _on_abort_say(text: str, code: int) -> None:
    """Prints one clear line when JAX aborts this process because another one is lost.

    JAX aborts from C++ with SIGABRT, where no Python handler runs.
    """

    def say(number):
        os.write(2, f"\n{text}\n".encode())
        os._exit(code)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(say)
    _kept.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)
