"""Eight fake CPU devices for every test, and programs compiled in a hurry; set before JAX starts.

Programs that tests start as processes of their own inherit the latter from the environment. With
`JAX_PLATFORMS=cuda` the tests run on a GPU, in whole float32; those that need more devices are skipped.
"""

import atexit
import gc
import logging
import operator
import os
import pathlib
import platform
import resource
import shutil
import signal
import sys
import tempfile
from importlib import metadata

os.environ.setdefault("JAX_PLATFORMS", "cpu")
if os.environ["JAX_PLATFORMS"] != "cpu":
    # A GPU multiplies float32 matrices in TF32, with 11 bits, unless it is told not to.
    os.environ.setdefault("JAX_DEFAULT_MATMUL_PRECISION", "highest")
# One thread for torch: with small models a second one only waits, and busily.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# LLVM's level; what XLA itself does to a program stays. Compiling is most of the suite's work. jaxlib 0.10
# can also leave out the detour by MLIR for fusions, two thirds of the rest; later ones cannot.
if os.environ["JAX_PLATFORMS"] == "cpu":
    os.environ["XLA_FLAGS"] = (
        f"--xla_backend_optimization_level=0 {os.environ.get('XLA_FLAGS', '')}"
    )
    if metadata.version("jaxlib").startswith("0.10."):
        os.environ["XLA_FLAGS"] += (
            " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        )

if "HF_DATASETS_CACHE" not in os.environ:  # rows that tests have read
    directory = os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="vade_jax_rows_")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
# What one test has compiled, another finds on disk, in whatever process; so does the next session.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    name = f"programs_{metadata.version('jaxlib')}_{platform.node()}_{os.cpu_count()}"
    directory = pathlib.Path(sys.prefix, name)
    if sum(entry.stat().st_size for entry in directory.glob("*")) > 5e8:
        shutil.rmtree(directory, ignore_errors=True)  # another session may be writing there
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(directory)
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

import jax
import pytest
from jax._src import compilation_cache

import experiments.diva  # noqa: F401  in every process, so that all see the same selectors
import vade_jax  # noqa: F401  sets XLA's flags, also in time
from experiments import errors
from vade_jax import samplers
from vade_jax.run import compiled

if "JAX_NUM_CPU_DEVICES" not in os.environ:
    jax.config.update("jax_num_cpu_devices", 8)


def store(key, name, program, *rest, put=compilation_cache.put_executable_and_time):
    """Several devices may wait for ever in a program from the cache: see `vade_jax.run.compiled.keep`."""
    if len(program.local_devices()) == 1:
        put(key, name, program, *rest)


compilation_cache.put_executable_and_time = store

MADE = {}


def once(make, key=lambda *args, **options: (args, *options.items())):
    """Returns `make`, which makes nothing again whose key is equal."""

    def made(*args, **options):
        what = make, key(*args, **options)
        if what not in MADE:
            MADE[what] = make(*args, **options)
        return MADE[what]

    return made


@pytest.fixture(scope="session", autouse=True)
def a_selector_is_built_once():
    """Equal hyperparameters give the same pure functions, whose programs are then compiled once a module."""
    key = lambda spec, **options: (spec, repr(sorted(options.items())))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(samplers.Spec, "__call__", once(samplers.Spec.__call__, key))
        patch.setattr(
            compiled, "keep", lambda: None
        )  # it would turn the cache off: there are eight devices
        yield


@pytest.fixture(scope="module", autouse=True)
def programs_are_let_go():
    """All of them together would take gigabytes; up to a limit, the next module uses them again."""
    yield
    memory = pathlib.Path("/proc/self/statm")  # in pages, the second number what is resident
    if not memory.exists() or int(memory.read_text().split()[1]) * resource.getpagesize() > 1.5e9:
        jax.clear_caches()
    for name in errors.SAVERS:  # silent in a program that has ended with an error
        logging.getLogger(name).disabled = False


def pytest_collection_finish():
    """Tracing creates millions of objects; the collector skips those that exist before the first test."""
    gc.freeze()
    gc.set_threshold(100_000, 10, 10)


def pytest_collection_modifyitems(items):
    """The files of few and long tests come first: the last ones let both workers end together."""
    long = ("trainer", "experiments", "run", "rollout")
    items.sort(key=lambda item: not item.nodeid.startswith(tuple(f"tests/{x}/" for x in long)))


def pytest_runtest_setup(item):
    """Where the devices are real ones, there are only so many."""
    if item.get_closest_marker("eight_devices") and jax.device_count() < 8:
        pytest.skip(f"needs eight devices, there are {jax.device_count()}")


@pytest.fixture(scope="session")
def small_checkpoint(tmp_path_factory):
    """The directory of a random two-layer policy with its tokenizer; to be copied, not changed."""
    from tests.trainer import small
    from vade_jax.models.qwen import presets, tiny_checkpoint

    directory = tmp_path_factory.mktemp("small") / "tiny_model"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(presets.PRESETS, "tiny", small.SHAPE)
        tiny_checkpoint.write(directory, seed=0)
    return directory


@pytest.fixture(scope="module")
def one_device():
    """Runs take one device instead of all, and leave the handlers of signals to pytest.

    Equal settings give the same programs: a run that is resumed would else trace and load them again.
    """
    from vade_jax.rollout import local
    from vade_jax.run import build
    from vade_jax.trainer import mesh, policy

    sections = operator.attrgetter("model", "lora", "loss", "optimizer", "sampling", "batch")
    key = lambda run, of: (repr(sections(run)), of.merge, of.tokenizer.banned_ids)
    make = mesh.make
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mesh, "make", lambda **axes: make(**axes, devices=jax.devices()[:1]))
        patch.setattr(signal, "signal", lambda *_: None)
        patch.setattr(policy, "abstract_policy", once(policy.abstract_policy))
        patch.setattr(local, "compile_answers", once(local.compile_answers))
        patch.setattr(local, "Apart", once(local.Apart))
        patch.setattr(build, "make_programs", once(build.make_programs, key))
        yield
