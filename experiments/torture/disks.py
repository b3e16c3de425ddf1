"""A separate disk for a trial, which can be filled or made read-only.

Root mounts a disk in memory. Without the right to mount, a limit keeps files from growing, and write
permissions are removed: not the same, but as close as possible.
"""

import contextlib
import os
import pathlib
import resource
import shutil
import subprocess
import time
from collections.abc import Iterator

SIZE = 1 << 30
BUSY_S = 20.0  # the longest wait: a disk cannot become read-only while a file is open for writing


class Disk:
    """The disk that a trial writes to."""

    def __init__(self, root: pathlib.Path, *, is_mounted: bool):
        self._root, self._is_mounted = root, is_mounted
        self._filler = root / "filler"

    def fill(self, pid: int, room: int) -> None:
        """Leaves `room` bytes free; without a mount, no file of the process may grow beyond `room` bytes."""
        if not self._is_mounted:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (room, resource.RLIM_INFINITY))
            return
        stats = os.statvfs(self._root)
        # Reserves the space without writing any bytes.
        with self._filler.open("wb") as file:
            free = stats.f_bavail * stats.f_frsize - room
            while free > 0:
                with contextlib.suppress(OSError):
                    os.posix_fallocate(file.fileno(), file.tell(), free)
                    return
                free -= 1 << 20

    def make_read_only(self) -> None:
        """Takes away the permission to write."""
        if not self._is_mounted:
            _chmod(self._root, 0o555)
            return
        deadline = time.monotonic() + BUSY_S
        command = ("mount", "-o", "remount,ro", str(self._root))
        while subprocess.run(command, capture_output=True).returncode:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self._root} is written to all the time")
            time.sleep(0.01)

    def mend(self) -> None:
        """Gives back the space and the permission to write."""
        if self._is_mounted:
            subprocess.run(("mount", "-o", "remount,rw", str(self._root)), check=True)
        else:
            _chmod(self._root, 0o755)
        self._filler.unlink(missing_ok=True)


@contextlib.contextmanager
def own(root: pathlib.Path) -> Iterator[Disk]:
    """Yields a disk at `root`, an empty directory; a mounted disk is removed afterwards, with its files."""
    command = ("mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(root))
    can_mount = shutil.which("mount") and os.geteuid() == 0
    is_mounted = bool(can_mount) and not subprocess.run(command, capture_output=True).returncode
    disk = Disk(root, is_mounted=is_mounted)
    try:
        yield disk
    finally:
        disk.mend()
        if is_mounted:
            subprocess.run(("umount", "--lazy", str(root)), check=True)


def _chmod(root: pathlib.Path, mode: int) -> None:
    for path in (root, *root.rglob("*")):
        if path.is_dir():
            path.chmod(mode)
