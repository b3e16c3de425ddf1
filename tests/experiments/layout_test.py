"""Which GPU does what: arithmetic on names, so no GPU is needed."""

import os

import jax
import pytest

from configs import default
from experiments import layout


def config(**fields):
    c = default.get_config()
    c.engine.name = "vllm_server"
    for name, value in fields.items():
        section, _, field = name.partition("__")
        c[section][field] = value
    return c


def test_each_server_gets_its_gpus_in_order():
    c = config(
        engine__num_servers=2, engine__tensor_parallel=2, layout__serve="4,5,6,7"
    )
    layout.check(c)
    assert layout.of_server(c, 0) == {"CUDA_VISIBLE_DEVICES": "4,5"}
    assert layout.of_server(c, 1) == {"CUDA_VISIBLE_DEVICES": "6,7"}


def test_without_names_the_servers_take_the_first_gpus():
    c = config(engine__num_servers=2, engine__tensor_parallel=2)
    assert layout.of_server(c, 1) == {"CUDA_VISIBLE_DEVICES": "2,3"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            dict(layout__serve="0,1", engine__tensor_parallel=4),
            r"layout.serve='0,1' names 2 GPUs, but .* is 4: name as many",
        ),
        (
            dict(layout__train_memory=0.6, layout__serve_memory=0.5),
            r"train_memory=0.6 and layout.serve_memory=0.5 are more than the GPU",
        ),
        (
            dict(
                layout__train="0,1",
                layout__serve="1",
                layout__train_memory=0.8,
                layout__serve_memory=0.9,
            ),
            r"give layout.train and layout.serve different GPUs",
        ),
    ],
)
def test_what_does_not_fit_is_an_error(fields, message):
    with pytest.raises(ValueError, match=message):
        layout.check(config(**fields))


@pytest.mark.parametrize(
    "fields",
    [
        dict(layout__train_memory=0.6, layout__serve_memory=0.3),
        dict(layout__train_memory=0.8, layout__serve_memory=0.9, layout__sleep=True),
        dict(
            layout__train="0",
            layout__serve="1",
            layout__train_memory=0.9,
            layout__serve_memory=0.9,
        ),
    ],
)
def test_what_fits_passes(fields):
    layout.check(config(**fields))


@pytest.fixture
def told(monkeypatch):
    """What JAX was told, in place of telling it."""
    told = {}
    monkeypatch.setattr(jax.config, "update", told.__setitem__)
    monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", "")  # restored afterwards
    del os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"]
    return told


def test_jax_gets_its_gpus_and_its_share(told):
    layout.apply(config(layout__train="0,1", layout__train_memory=0.6))
    assert told == {"jax_cuda_visible_devices": "0,1"}
    assert os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.6"


def test_nothing_said_changes_nothing(told):
    layout.apply(default.get_config())
    assert told == {}
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" not in os.environ
