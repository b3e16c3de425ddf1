"""Keeps compiled programs for the next run: JAX's persistent cache, bounded."""

import contextlib
import hashlib
import os
import pathlib
import platform
import re

import jax

from vade_jax import settings

MAX_BYTES = 2 * 10**9


def keep(perf: settings.Perf) -> None:
    """Makes JAX keep compiled programs in the user's cache directory, unless the settings say otherwise.

    Cached programs are executed, so they lie where only this user writes. If JAX_COMPILATION_CACHE_DIR is
    set, its directory is used unchanged.
    """
    if not perf.compile_cache or jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue] (jax adds it at run time)
        return
    name = jax.default_backend()
    if name == "cpu":
        # A program uses the instructions of its CPU and is divided over the cores of the process; neither is
        # in JAX's key.
        name = f"cpu{_num_cores()}_{_kind_of_cpu()}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = pathlib.Path(home, "vade_jax", "compiled", name)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        print(f"{path} cannot be made ({error.strerror}): programs are compiled at every start")
        return
    for entry in path.glob("*-cache"):
        # JAX writes "-atime" last. Without it a kill came before: the entry may be a part, which JAX would
        # neither read nor replace.
        if not entry.with_name(entry.name.removesuffix("-cache") + "-atime").exists():
            with contextlib.suppress(OSError):  # another run removed it
                entry.unlink()
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_compilation_cache_max_size", MAX_BYTES)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def _num_cores() -> int:
    """Returns the number of cores that this process may use; a sweep gives each run a share."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _kind_of_cpu() -> str:
    """Returns a short name for the instruction set of this machine's CPU."""
    with contextlib.suppress(OSError):
        text = pathlib.Path("/proc/cpuinfo").read_text()
        if flags := re.search(r"^(flags|Features)\s*:(.*)$", text, re.MULTILINE):
            return hashlib.sha256(flags[2].encode()).hexdigest()[:8]
    return platform.machine()  # not Linux, where machines seldom share a directory
