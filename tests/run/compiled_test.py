"""What a run compiles is found by the next one, and a kill does no lasting harm."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from vade_jax import settings
from vade_jax.run import compiled

ROOT = pathlib.Path(__file__).parents[2]
HITS, REQUESTS = (
    f"/jax/compilation_cache/{x}" for x in ("cache_hits", "compile_requests_use_cache")
)
FIELDS = [
    f"jax_{x}"
    for x in (
        "compilation_cache_dir",
        "compilation_cache_max_size",
        "persistent_cache_min_compile_time_secs",
    )
]


@pytest.fixture
def no_cache():
    """JAX as in a new process to which nobody has named a directory."""
    before = {name: getattr(jax.config, name) for name in FIELDS}
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    yield
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


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "vade_jax" / "compiled"


@pytest.mark.usefixtures("no_cache")
def test_the_next_run_finds_what_was_compiled_and_not_what_a_kill_left(home, events):
    compiled.keep(settings.Perf())
    compile_something()
    assert HITS not in events
    (directory,) = home.iterdir()
    entries = sorted(directory.glob("*-cache"))
    assert entries
    (directory / "part-cache").write_bytes(b"1")
    compilation_cache.reset_cache()  # as another process
    jax.config.update("jax_compilation_cache_dir", None)
    events.clear()
    compiled.keep(settings.Perf())
    compile_something()
    assert events.count(HITS) == events.count(REQUESTS) == len(entries)
    assert sorted(directory.glob("*-cache")) == entries


@pytest.mark.usefixtures("no_cache")
def test_who_wants_none_has_none_and_a_directory_of_ones_own_stays(home, tmp_path):
    compiled.keep(settings.Perf(compile_cache=False))
    assert jax.config.jax_compilation_cache_dir is None
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    compiled.keep(settings.Perf())
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    assert not home.exists()


@pytest.mark.usefixtures("no_cache")
def test_a_home_that_cannot_be_written_is_told(home, capsys):
    home.parent.touch()
    compiled.keep(settings.Perf())
    assert "programs are compiled at every start" in capsys.readouterr().out
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.slow
def test_a_whole_job_compiles_nothing_the_second_time(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    entries = []
    for name in ("one", "two"):
        subprocess.run(
            [
                sys.executable,
                "-m",
                "experiments.train",
                "--config=configs/tiny_gspo.py:smoke",
                f"--workdir={tmp_path / name}",
                "--config.num_steps=2",
            ],
            cwd=ROOT,
            env=environment,
            check=True,
        )
        entries.append(sorted((tmp_path / "vade_jax").rglob("*-cache")))
    assert len(entries[0]) > 10
    assert entries[0] == entries[1]
