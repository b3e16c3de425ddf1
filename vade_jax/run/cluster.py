"""The processes of a run: how they join, and how they end together.

With several hosts, every host runs the same command, with a run directory that all hosts see.
"""

import contextlib
import os
import pathlib
import signal
import sys
import time
import traceback
from collections.abc import Iterator

import jax

from vade_jax.trainer import processes

HEARTBEAT_TIMEOUT_S = 40  # a process silent for so long counts as gone; process 0 is missed at once
VISIBLE_TIMEOUT_S = 60.0  # until a new file is visible on all hosts


# ------------------------------------------------------------------------------ starting
def join(
    coordinator_address: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
    *,
    distributed: bool = False,
) -> None:
    """Joins the other processes of the run, if there are any. Call it before any device is used.

    The arguments are those of `jax.distributed.initialize`; with `distributed` alone it takes them from the
    cluster's environment (SLURM, Kubernetes, Open MPI, a TPU pod). Without any, the run has one process.

    Raises:
        ValueError: some of the three are missing, the environment does not provide them, or the processes did
            not find each other.
    """
    place = (coordinator_address, num_processes, process_id)
    if place == (None, None, None) and not distributed:
        return
    jax.config.update("jax_enable_preemption_service", False)  # SIGTERM: see StopSignal
    try:
        jax.distributed.initialize(*place, heartbeat_timeout_seconds=HEARTBEAT_TIMEOUT_S)
    except (ValueError, IndexError, RuntimeError) as error:
        raise ValueError(
            f"the processes did not find each other: give each its --process_id, all the same --num_processes, and as "
            f"--coordinator_address HOST:PORT of process 0, or --distributed alone ({error!r:.200})"
        ) from error


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
                f"process {jax.process_index()} does not see {path} of process 0: share --workdir with all hosts"
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
        # Not print: the signal may interrupt a print, and the reader of the output may have ended.
        with contextlib.suppress(OSError):
            os.write(2, b"\nstopping as soon as all is saved; Ctrl-C again stops at once\n")


@contextlib.contextmanager
def ends_together() -> Iterator[None]:
    """Makes a failing process exit at once, so that the others, which wait for it, notice.

    JAX ends them: it aborts a process that has lost another one, or raises an error.
    """
    try:
        yield
    except BaseException as error:
        is_clean = isinstance(error, SystemExit) and error.code in (None, 0)
        if not jax.distributed.is_initialized() or is_clean:
            raise
        code = 1
        if not isinstance(error, SystemExit):
            traceback.print_exception(error)
        elif isinstance(error.code, int):
            code = error.code
        else:
            print(error.code, file=sys.stderr)
        # A normal exit would wait minutes for the other processes.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
