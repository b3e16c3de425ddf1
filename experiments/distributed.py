"""Several processes that train one policy: how they find each other, and how they end together.

    --distributed            on SLURM, Kubernetes, Open MPI or a TPU pod, which tell each its place
    --coordinator_address=HOST:PORT --num_processes=4 --process_id=0        anywhere

The same command runs on every host, and a run directory that all hosts see is needed. A run of one
process needs no flag.
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

import jax
from absl import flags

from vade_jax.trainer import processes

DISTRIBUTED = flags.DEFINE_bool(
    "distributed", False, "Several processes, as the cluster's environment says."
)
COORDINATOR = flags.DEFINE_string(
    "coordinator_address", None, "HOST:PORT of process 0, as all processes reach it."
)
NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Processes in all.")
PROCESS_ID = flags.DEFINE_integer("process_id", None, "Which of them this is, from 0.")

START_TIMEOUT_S = 300  # for the slowest process to come
HEARTBEAT_TIMEOUT_S = 40  # then a process counts as gone; process 0 at once
VISIBLE_TIMEOUT_S = 60.0  # for a file to be seen on all hosts
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
_kept = []  # what C calls must not be collected


def initialize() -> None:
    """Joins the other processes, if the flags say that there are any; before any device is used.

    Raises:
        ValueError: some flags are missing, or the environment tells nothing.
    """
    given = _given()
    if not given and not DISTRIBUTED.value:
        return
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
    """Silences what the other processes print; errors come from all. Touches the devices."""
    if not processes.is_leader():
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 (until the end)


def _given() -> dict:
    """Returns the three flags, all or none of them."""
    values = {
        "coordinator_address": COORDINATOR.value,
        "num_processes": NUM_PROCESSES.value,
        "process_id": PROCESS_ID.value,
    }
    missing = [f"--{name}" for name, value in values.items() if value is None]
    if len(missing) == len(values):
        return {}
    if missing:
        raise ValueError(
            f"{' and '.join(missing)} missing: give --coordinator_address, --num_processes and "
            "--process_id together, or --distributed alone where the cluster tells them"
        )
    return _checked(values)


def _checked(values):
    address, count, number = values.values()
    if not re.fullmatch(r".+:\d+", address):
        raise ValueError(
            f"--coordinator_address={address} is not HOST:PORT, such as 10.0.0.1:8476"
        )
    if not 0 <= number < count:
        raise ValueError(
            f"--process_id={number} is not in 0 .. --num_processes - 1 = {count - 1}"
        )
    return values


@contextlib.contextmanager
def ends_together() -> Iterator[None]:
    """Lets a process that fails leave at once, so that the others, which wait for it, learn of it.

    A JAX error that says that another process is gone becomes one line.
    """
    try:
        yield
    except BaseException as error:
        if not jax.distributed.is_initialized() or _is_clean(error):
            raise
        _leave(_report(error))


def _is_clean(error):
    return isinstance(error, SystemExit) and error.code in (None, 0)


def _report(error) -> int:
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


def _is_gone(error):
    """Returns JAX's complaint that another process is not there, where that is the cause."""
    while error is not None:
        is_jax = isinstance(error, jax.errors.JaxRuntimeError)
        if is_jax and GONE.search(str(error)):
            return error
        error = error.__cause__ or error.__context__
    return None


def _leave(code):
    """Ends without waiting for the others, which a usual exit does for minutes."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _on_abort_say(text: str, code: int) -> None:
    """Adds one clear line where JAX ends this process itself, because another one is not there.

    It does so from C++, by SIGABRT behind a stack trace, where no Python handler runs.
    """

    def say(number):
        os.write(2, f"\n{text}\n".encode())
        os._exit(code)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(say)
    _kept.append(handler)
    ctypes.CDLL(None).signal(signal.SIGABRT, handler)


def check_shared(path: str | os.PathLike) -> None:
    """Waits until this process sees what process 0 has written.

    Raises:
        ValueError: it does not come to be seen: the directory is on a disk of its own.
    """
    path, deadline = pathlib.Path(path), time.monotonic() + VISIBLE_TIMEOUT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise ValueError(
                f"process {jax.process_index()} does not see {path}, which process 0 has "
                "written: give a --workdir on a file system that all hosts share"
            )
        time.sleep(0.2)


def _first_line(error):
    return str(error).strip().partition("\n")[0][:200]
