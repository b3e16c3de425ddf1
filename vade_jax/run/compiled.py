"""Keeps compiled programs for the next run: JAX's persistent cache, bounded."""

import os
import pathlib
import platform

import jax
from jax.experimental.compilation_cache import compilation_cache


def keep() -> None:
    """Makes JAX keep compiled programs in the user's cache directory.

    Cached programs are executed, so only this user can write there. JAX_COMPILATION_CACHE_DIR is another
    directory, used unchanged; JAX_ENABLE_COMPILATION_CACHE=false keeps none.
    """
    if jax.device_count() > 1 and jax.default_backend() == "cpu":
        # In a program from the cache XLA's CPU client forgets the order of collectives that do not depend on
        # each other: then one device sums, the other gathers, and both wait for ever.
        jax.config.update("jax_enable_compilation_cache", False)
        compilation_cache.reset_cache()  # or the answer of the first program would hold
        return
    if jax.config.jax_compilation_cache_dir:  # pyright: ignore[reportAttributeAccessIssue] (jax adds it at run time)
        return
    name = jax.default_backend()
    if name == "cpu":
        # A program uses the instructions of its CPU and is divided over the cores of the process; neither is
        # in JAX's key.
        cores = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
        name = f"{platform.node()}_cpu{len(cores)}"
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = pathlib.Path(home, "vade_jax", "compiled", name)
    for entry in path.glob("*-cache"):
        # JAX writes "-atime" last. After a kill before that, it would fail to write any other entry.
        if not entry.with_name(entry.name.removesuffix("-cache") + "-atime").exists():
            entry.unlink(missing_ok=True)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_compilation_cache_max_size", 2 * 10**9)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
