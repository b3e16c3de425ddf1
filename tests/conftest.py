"""Eight fake CPU devices for every test, and programs compiled in a hurry; set before JAX starts.

Programs that tests start as processes of their own inherit the latter from the environment.
"""

import os
import signal

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# LLVM's level; what XLA itself does to a program stays. Compiling is most of the suite's work.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 " if os.environ["JAX_PLATFORMS"] == "cpu" else ""
) + os.environ.get("XLA_FLAGS", "")

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

import vade_jax  # noqa: F401  sets XLA's flags, also in time

jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(scope="module", autouse=True)
def programs_are_let_go():
    """The next module has its own; all of them together would take gigabytes."""
    yield
    jax.clear_caches()


@pytest.fixture(scope="session")
def compile_directory(tmp_path_factory):
    return str(tmp_path_factory.mktemp("compiled"))


@pytest.fixture(scope="module")
def compile_cache(compile_directory):
    """What one run of a program compiled, the next finds on disk; for modules that run it often."""
    wanted = {
        "jax_compilation_cache_dir": compile_directory,
        "jax_persistent_cache_min_compile_time_secs": 0.1,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    for name, value in wanted.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture(scope="session")
def small_checkpoint(tmp_path_factory):
    """The directory of a random two-layer policy with its tokenizer; to be copied, not changed."""
    from tests.trainer import small
    from vade_jax.models.qwen25vl import config, tiny_checkpoint

    directory = tmp_path_factory.mktemp("small") / "tiny_model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(config.PRESETS, "tiny", small.SHAPE)
        tiny_checkpoint.write(directory, seed=0)
    return directory


@pytest.fixture(scope="module")
def one_device(compile_cache):
    """Runs take one device instead of all, and leave the handlers of signals to pytest."""
    from vade_jax.trainer import mesh

    make = mesh.make
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mesh, "make", lambda **axes: make(**axes, devices=jax.devices()[:1]))
        patch.setattr(signal, "signal", lambda *_: None)
        yield
