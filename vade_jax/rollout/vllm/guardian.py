"""Runs a server that must not outlive the run: `python guardian.py PARENT COMMAND...`.

It stands between the run (PARENT, a process id) and the server, in a session of its own: Ctrl-C does
not reach them. When the run is gone, however it ended, or sends SIGTERM, the server is asked to stop,
and after `GRACE` seconds every process of the group is killed, the guardian too. A process of its own
is the only one that is still there when the run was killed by SIGKILL.

Standard library only: it is started by its path, without the package.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

POLL = 0.2  # seconds
GRACE = 10.0  # seconds between asking and killing
CLEANING = 5.0  # seconds for the resource trackers
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


def main(parent: int, command: list[str]) -> None:
    """Does not return: ends with its whole process group."""
    asked = []  # to stop
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    server = subprocess.Popen(command, preexec_fn=_die_with_guardian)
    # A run that is gone has left its children to another parent.
    while server.poll() is None and not asked and os.getppid() == parent:
        time.sleep(POLL)
    if server.poll() is None:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(GRACE)
    print(f"the server ended with exit status {server.poll()}", flush=True)
    _kill_all_but_trackers()
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _die_with_guardian() -> None:
    """Should the guardian itself be killed, the kernel kills the server."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill_all_but_trackers() -> None:
    """Kills the group but for Python's resource trackers, and waits until these are done.

    They see that their process has ended, and remove the shared memory that it left in /dev/shm.
    Without /proc it returns at once.
    """
    end = time.monotonic() + CLEANING
    while (members := dict(_members())) and time.monotonic() < end:
        for pid, is_tracker in members.items():
            if not is_tracker:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(POLL)


def _members() -> Iterator[tuple[int, bool]]:
    """Yields the other living processes of the group, and whether it is a tracker."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) != os.getpgrp() or int(folder.name) == os.getpid():
                continue
            if state != "Z":
                command = (folder / "cmdline").read_bytes()
                yield int(folder.name), b"multiprocessing.resource_tracker" in command


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
