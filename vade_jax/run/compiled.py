"""Programs that one run has compiled and the next one finds: JAX's persistent cache, cleaned at each start.

The cache lies next to the run directories: a resumed run, and the next of the same shapes, compile nothing.
JAX's keys hold the program, its versions, the options and the devices. Three things are left to do:

- JAX writes an entry in place. A process that is killed meanwhile leaves a part of it, which JAX can
  neither read nor replace. Each start removes such parts. (Another run that writes one at this very
  moment loses it, and compiles it again some day.)
- Nothing bounds the directory: each start removes the oldest entries beyond `MAX_BYTES`. JAX's own
  bound has a second file for each entry, and writes nothing more once a kill came between the two.
- Programs for a CPU have the instructions of that CPU and are cut for the cores that the process has.
  Neither is in the key: such programs lie in a directory for each.
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
    """Lets JAX keep what it compiles next to `workdir`, unless the settings or the user say otherwise.

    If other users can write there, the cache is put into `workdir`. A directory that
    JAX_COMPILATION_CACHE_DIR names stays what it is. The run directory must exist.
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
    """Returns whether this user may write there and strangers may not: what lies in the cache is run.

    /tmp is not, nor is the parent of one's home.
    """
    found = directory.stat()
    is_open = found.st_mode & stat.S_IWOTH
    return os.access(directory, os.W_OK) and not is_open and found.st_uid in (0, os.getuid())


def tidy(directory: pathlib.Path, max_bytes: int) -> None:
    """Removes entries that are not whole, and the oldest ones beyond `max_bytes` in all.

    An entry is read once: those from before the last call were whole then. Two gigabytes take half a
    minute to read.
    """
    if not directory.is_dir():
        return
    entries, total, stamp = [], 0, directory / "tidied"
    last = stamp.stat().st_mtime_ns if stamp.exists() else 0
    with atomic.replacing(stamp) as began:
        began.touch()  # its time is the file system's, as that of the entries is
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
    """Returns whether an entry was written to its end, by the checksum that zlib has there."""
    if data.startswith(b"\x28\xb5\x2f\xfd"):  # by zstandard, where that is installed: not checked
        return True
    decompressor = zlib.decompressobj()
    try:
        decompressor.decompress(data)
    except zlib.error:
        return False
    return decompressor.eof


def _num_cores() -> int:
    """Returns the cores that this process may use; a sweep gives each of its runs a few."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _kind_of_cpu() -> str:
    """Returns a short name for the instructions that this machine's CPUs have."""
    with contextlib.suppress(OSError):
        text = pathlib.Path("/proc/cpuinfo").read_text()
        if found := re.search(r"^(flags|Features)\s*:(.*)$", text, re.MULTILINE):
            return hashlib.sha256(found[2].encode()).hexdigest()[:8]
    return platform.machine()  # elsewhere than on Linux a directory is seldom shared
