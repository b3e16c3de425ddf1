"""What a run compiles is found by the next one, and a kill does no lasting harm."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from vade_jax.run import compiled

HITS = "/jax/compilation_cache/cache_hits"
FIELDS = (
    "jax_compilation_cache_dir",
    "jax_compilation_cache_max_size",
    "jax_persistent_cache_min_compile_time_secs",
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """JAX as in a new process to which nobody has named a directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    before = {name: getattr(jax.config, name) for name in FIELDS}
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield tmp_path / "vade_jax" / "compiled"
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def events():
    seen = []
    listen = lambda name, **_: seen.append(name)
    jax.monitoring.register_event_listener(listen)
    yield seen
    jax.monitoring.unregister_event_listener(listen)


def compile_something():
    jax.clear_caches()
    jax.jit(lambda x: jnp.sin(x) @ x)(jnp.ones((3, 3)))


def test_the_next_run_finds_what_was_compiled_and_not_what_a_kill_left(home, events):
    compiled.keep()
    compile_something()
    assert HITS not in events
    (directory,) = home.iterdir()
    entries = sorted(directory.glob("*-cache"))
    (directory / "part-cache").write_bytes(b"1")
    compilation_cache.reset_cache()  # as another process
    jax.config.update("jax_compilation_cache_dir", None)
    compiled.keep()
    compile_something()
    assert events.count(HITS) == len(entries) > 0
    assert sorted(directory.glob("*-cache")) == entries


def test_a_directory_that_was_named_stays(home, tmp_path):
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    compiled.keep()
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine") and not home.exists()
