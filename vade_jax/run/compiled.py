"""Keeps compiled programs for the next run: JAX's persistent cache, cleaned at each start.

The cache is next to the run directories, so a resumed run, or another run of the same shapes, compiles
nothing. JAX's keys contain the program, the versions, the options and the devices. This file adds three
things:

- JAX writes an entry in place. If the process is killed meanwhile, it leaves a part that JAX can neither
  read nor replace. Each start removes such parts. (If another run is writing one at that moment, it loses
  the entry and compiles it again later.)
- JAX does not bound the directory safely: its own limit keeps a second file for each entry, and stops
  writing if a kill came between the two. So each start removes the oldest entries beyond `MAX_BYTES`.
- A program for a CPU uses the instructions of that CPU and is divided over the cores of the process.
  Neither is in JAX's key, so each combination has its own directory.
"""

import contextlib
import hashlib
import os
import pathlib
import platform
import re
import stat
import zlib

import jax

from vade_jax import atomic, settings
from vade_jax.trainer import processes

DIRECTORY = "compiled"
MAX_BYTES = 2 * 10**9


def keep(perf: settings.Perf, workdir: str) -> None:
    """Makes JAX keep compiled programs next to `workdir`, unless the settings or the user say otherwise.

    If other users can write there, the cache goes into `workdir`. If JAX_COMPILATION_CACHE_DIR is set, its
    directory is used unchanged. `workdir` must exist.
    """
    if not perf.compile_cache or jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue] (jax adds it at run time)
        return
    name = jax.default_backend()
    if name == "cpu":
        name = f"cpu{_num_cores()}_{_kind_of_cpu()}"
    own = pathlib.Path(workdir).absolute()
    shared = own.parent if _is_ones_own(own.parent) else own
    path = shared / DIRECTORY / name
    if processes.is_leader():
        tidy(path, MAX_BYTES)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _is_ones_own(directory: pathlib.Path) -> bool:
    """Returns whether this user can write there and strangers cannot: cached programs are executed.

    False for /tmp and for the parent of a home directory.
    """
    found = directory.stat()
    is_open = found.st_mode & stat.S_IWOTH
    return os.access(directory, os.W_OK) and not is_open and found.st_uid in (0, os.getuid())


def tidy(directory: pathlib.Path, max_bytes: int) -> None:
    """Removes incomplete entries, and the oldest entries beyond `max_bytes` in total.

    Reading two gigabytes takes half a minute, so each entry is read once: those from before the last call
    were complete then.
    """
    if not directory.is_dir():
        return
    entries, total, stamp = [], 0, directory / "tidied"
    last = stamp.stat().st_mtime_ns if stamp.exists() else 0
    with atomic.replacing(stamp) as began:
        began.touch()  # takes its time from the file system, like the entries
        for path in directory.glob("*-cache"):
            with contextlib.suppress(OSError):  # another run may have removed it
                found = path.stat()
                entries.append((found.st_mtime_ns, found.st_size, path))
        for changed, size, path in sorted(entries, reverse=True):
            with contextlib.suppress(OSError):
                is_whole = changed < last or _is_whole(path.read_bytes())
                total += size * is_whole
                if total > max_bytes or not is_whole:
                    path.unlink()


def _is_whole(data: bytes) -> bool:
    """Returns whether an entry is complete; zlib ends with a checksum."""
    if data.startswith(b"\x28\xb5\x2f\xfd"):  # zstandard, if it is installed; not checked
        return True
    decompressor = zlib.decompressobj()
    try:
        decompressor.decompress(data)
    except zlib.error:
        return False
    return decompressor.eof


def _num_cores() -> int:
    """Returns the number of cores that this process may use; a sweep gives each run a share."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _kind_of_cpu() -> str:
    """Returns a short name for the instruction set of this machine's CPU."""
    with contextlib.suppress(OSError):
        text = pathlib.Path("/proc/cpuinfo").read_text()
        if found := re.search(r"^(flags|Features)\s*:(.*)$", text, re.MULTILINE):
            return hashlib.sha256(found[2].encode()).hexdigest()[:8]
    return platform.machine()  # not Linux, where machines seldom share a directory
