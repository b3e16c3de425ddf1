"""Runs a server that must not outlive the run: `python guardian.py PARENT COMMAND...`.

The guardian is the child of the run (PARENT, a process id) and the parent of the server. Guardian and
server have their own session, so Ctrl-C does not reach them. When the run has ended, in whatever way,
or sends SIGTERM, the guardian asks the server to stop. After at most `GRACE` seconds it kills every
process of the group, itself included. It is a separate process because the run cannot clean up after
SIGKILL.

It imports only the standard library, because it is started by its path, without the package.
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
GRACE = 10.0  # seconds from SIGTERM to SIGKILL
CLEANING = 5.0  # seconds that the resource trackers get to finish
_PR_SET_PDEATHSIG = 1  # from linux/prctl.h


def main(parent: int, command: list[str]) -> None:
    """Runs the command until it or the run ends, then kills its own process group. Never returns."""
    asked = []  # not empty once the run has sent SIGTERM
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    server = subprocess.Popen(command, preexec_fn=_die_with_guardian)
    # When the run has ended, the guardian gets another parent.
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
    """Asks the kernel to kill this process, the server, if the guardian dies. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _kill_all_but_trackers() -> None:
    """Kills all processes of the group except Python's resource trackers, and waits for the trackers.

    A tracker notices that its process has ended, removes the shared memory that the process left in
    /dev/shm, and exits. Without /proc the function returns at once.
    """
    end = time.monotonic() + CLEANING
    while (members := dict(_members())) and time.monotonic() < end:
        for pid, is_tracker in members.items():
            if not is_tracker:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        time.sleep(POLL)


def _members() -> Iterator[tuple[int, bool]]:
    """Yields (process id, is it a resource tracker) of the other living processes of the group."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # the process has just ended
            state, _, group = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
            if int(group) != os.getpgrp() or int(folder.name) == os.getpid():
                continue
            if state != "Z":  # not a zombie
                command = (folder / "cmdline").read_bytes()
                yield int(folder.name), b"multiprocessing.resource_tracker" in command


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
