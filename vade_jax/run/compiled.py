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
    shared = own.parent / DIRECTORY
    path = (shared if _is_ones_own(shared) else own / DIRECTORY) / name
    if processes.is_leader():
        tidy(path, MAX_BYTES)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _is_ones_own(cache: pathlib.Path) -> bool:
    """Returns whether this user can write there and nobody else can: cached programs are executed.

    False in /tmp, in the parent of a home directory, in a project's directory that a group shares, and where
    another user has made the cache.
    """
    parent, user = cache.parent.stat(), os.getuid()
    # The group of one's own directory is one's own affair: some systems let it write by default.
    strangers = stat.S_IWOTH | (stat.S_IWGRP if parent.st_uid != user else 0)
    if cache.exists() and cache.stat().st_uid != user:
        return False
    return (
        os.access(cache.parent, os.W_OK)
        and not parent.st_mode & strangers
        and parent.st_uid in (0, user)
    )


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
