"""What a run compiles is found by the next one, and a kill does no lasting harm."""

import os
import pathlib
import subprocess
import sys
import zlib

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
FIELDS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


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


@pytest.mark.usefixtures("no_cache")
def test_the_next_run_finds_what_is_beside_its_directory(tmp_path, events):
    compiled.keep(settings.Perf(), str(tmp_path / "one"))
    compile_something()
    assert HITS not in events
    (directory,) = (tmp_path / "compiled").iterdir()
    made = sorted(directory.iterdir())
    assert made
    compilation_cache.reset_cache()  # as another process
    jax.config.update("jax_compilation_cache_dir", None)
    events.clear()
    compiled.keep(settings.Perf(), str(tmp_path / "two"))
    compile_something()
    assert events.count(HITS) == events.count(REQUESTS) == len(made)
    assert sorted(directory.glob("*-cache")) == made


@pytest.mark.usefixtures("no_cache")
def test_who_wants_none_has_none_and_a_directory_of_ones_own_stays(tmp_path):
    off = settings.Perf(compile_cache=False)
    compiled.keep(off, str(tmp_path / "run"))
    assert jax.config.jax_compilation_cache_dir is None
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "mine"))
    compiled.keep(settings.Perf(), str(tmp_path / "run"))
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    assert not (tmp_path / "compiled").exists()


root = pytest.mark.skipif(os.getuid() != 0, reason="only root may give it")


def _opened(directory):
    directory.chmod(0o777)


def _given_away(directory):
    os.chown(directory, 65534, -1)


def _made_by_another(directory):
    (directory / "compiled").mkdir()
    os.chown(directory / "compiled", 65534, -1)


@pytest.mark.usefixtures("no_cache")
@pytest.mark.parametrize(
    "change",
    [
        _opened,
        pytest.param(_given_away, marks=root),
        pytest.param(_made_by_another, marks=root),
    ],
)
def test_beside_strangers_programs_are_kept_in_the_run_directory(tmp_path, change):
    run = tmp_path / "of_all" / "run"
    run.mkdir(parents=True)
    change(run.parent)
    compiled.keep(settings.Perf(), str(run))
    assert pathlib.Path(jax.config.jax_compilation_cache_dir).parent == run / "compiled"


def test_parts_of_entries_and_the_oldest_ones_go(tmp_path):
    entry = zlib.compress(os.urandom(1000))
    for age, name in enumerate(("new", "part", "older", "oldest")):
        path = tmp_path / f"jit_{name}-cache"
        path.write_bytes(entry[:-1] if name == "part" else entry)
        os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "jit_empty-cache").touch()
    (tmp_path / "else").write_bytes(entry)
    compiled.tidy(tmp_path, max_bytes=2 * len(entry))
    kept = {"jit_new-cache", "jit_older-cache", "else", "tidied"}
    assert {x.name for x in tmp_path.iterdir()} == kept
    # What was whole is not read again, and what came since is.
    (tmp_path / "jit_new-cache").write_bytes(entry[:-1])
    (tmp_path / "jit_older-cache").write_bytes(entry[:-1])
    os.utime(tmp_path / "jit_older-cache", (1e9, 1e9))
    compiled.tidy(tmp_path, max_bytes=2 * len(entry))
    assert {x.name for x in tmp_path.iterdir()} == kept - {"jit_new-cache"}
    compiled.tidy(tmp_path / "nothing", max_bytes=1)


@pytest.mark.slow
def test_a_whole_job_compiles_nothing_the_second_time(tmp_path):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")}
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
        entries.append(sorted((tmp_path / "compiled").rglob("*-cache")))
    assert len(entries[0]) > 10
    assert entries[0] == entries[1]
