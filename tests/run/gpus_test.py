"""Who uses which GPU: arithmetic on names, so no GPU is needed."""

import os

import jax
import pytest

from vade_jax import settings
from vade_jax.run import gpus

NAMES = (gpus.TRAIN_MEMORY, gpus.OLD_TRAIN_MEMORY)


def sections(**fields):
    """Returns the layout and the engine with section__field changed."""
    made = {"layout": {}, "engine": {"name": "vllm_server"}}
    for name, value in fields.items():
        section, _, field = name.partition("__")
        made[section][field] = value
    return settings.Layout(**made["layout"]), settings.Engine(**made["engine"])


@pytest.fixture(autouse=True)
def untold(monkeypatch):
    """No variable says anything, and what a test sets is taken back."""
    for name in (*NAMES, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")
        del os.environ[name]


@pytest.mark.parametrize(
    ("visible", "fields", "expected"),
    [
        (None, dict(engine__data_parallel=2, engine__tensor_parallel=2), ["0", "1", "2", "3"]),
        (None, dict(layout__serve="4,5", engine__tensor_parallel=2), ["4", "5"]),
        ("4,5,6,7", dict(layout__serve="2,3", engine__tensor_parallel=2), ["6", "7"]),
        ("GPU-a, GPU-b", dict(layout__serve="1"), ["GPU-b"]),
        ("4,5", dict(layout__serve="GPU-x"), ["GPU-x"]),
        ("", dict(layout__serve="1"), []),  # none is to be used: nor by a server
    ],
)
def test_a_server_gets_gpus_of_those_that_the_run_was_given(monkeypatch, visible, fields, expected):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus.of_server(*sections(**fields)) == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (dict(layout__serve="4"), r"GPU 4 of .* CUDA_VISIBLE_DEVICES=4,5,6,7 shows 4"),
        (dict(layout__train="0,4"), r"GPU 4 of "),
        (dict(engine__data_parallel=5), r"GPU 4 of "),
        (dict(layout__serve="0,1", engine__tensor_parallel=4), r"names 2 GPUs, but .* is 4: name"),
        ({}, r"train_memory=0.75 \(.* and layout.serve_memory=0.9 are more than the GPU"),
        (dict(layout__train="0,1", layout__serve="1"), r"give layout.train and layout.serve diff"),
    ],
)
def test_a_layout_that_cannot_be(monkeypatch, fields, message):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    with pytest.raises(ValueError, match=message):
        gpus.check_layout(*sections(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        dict(layout__train_memory=0.6, layout__serve_memory=0.3),
        dict(layout__train_memory=0.8, layout__sleep=True),
        dict(layout__train_memory=0.9, layout__train="0", layout__serve="1"),
        dict(layout__serve_memory=0.25),
    ],
)
def test_what_fits_on_a_shared_gpu_passes(fields):
    gpus.check_layout(*sections(**fields))


@pytest.mark.parametrize("name", NAMES)
def test_jaxs_share_may_be_told_by_its_own_variables(monkeypatch, name):
    monkeypatch.setenv(name, "0.5")
    gpus.check_layout(*sections(layout__serve_memory=0.45))
    with pytest.raises(ValueError, match=r"train_memory=0.5 .*serve_memory=0.55"):
        gpus.check_layout(*sections(layout__serve_memory=0.55))


@pytest.fixture
def told(monkeypatch):
    """What JAX was told, in place of telling it."""
    told = {}
    monkeypatch.setattr(jax.config, "update", told.__setitem__)
    return told


def test_jax_gets_its_gpus_and_its_share(told):
    gpus.take(settings.Layout())
    assert told == {} and not os.environ.keys() & set(NAMES)
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.3"  # JAX takes no two
    gpus.take(settings.Layout(train="0,1", train_memory=0.6))
    assert told == {"jax_cuda_visible_devices": "0,1"}
    assert [os.environ.get(name) for name in NAMES] == ["0.6", None]


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize(
    ("error", "train", "message"),
    [
        (AssertionError(), "", r"='cpu': JAX has no device that it can use \(there is none\): "),
        (
            RuntimeError("Unable to initialize backend 'cuda': gone (set JAX_PLATFORMS='')\nmore"),
            "0,9",
            r"='cpu' and layout.train='0,9': .* \(Unable to initialize backend 'cuda': gone\): ",
        ),
    ],
)
def test_no_device_to_use_is_one_line(monkeypatch, error, train, message):
    def devices():
        raise error

    monkeypatch.setattr(jax, "devices", devices)
    with pytest.raises(ValueError, match=f"^JAX_PLATFORMS{message}") as caught:
        gpus.take(settings.Layout(train=train))
    assert "\n" not in str(caught.value)
