"""Who uses which GPU: arithmetic on names, so no GPU is needed."""

import os

import jax
import pytest

from vade_jax import settings
from vade_jax.run import gpus

NAMES = (gpus.TRAIN_MEMORY, gpus.OLD_TRAIN_MEMORY)


def sections(layout=None, **engine):
    """Returns a layout and an engine of vLLM with some fields changed."""
    return settings.Layout(**layout or {}), settings.Engine(name="vllm_server", **engine)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    """No variable says anything, and what a test sets is taken back."""
    for name in (*NAMES, "CUDA_VISIBLE_DEVICES"):
        monkeypatch.setenv(name, "")
        del os.environ[name]


@pytest.mark.parametrize(
    ("visible", "serve", "engine", "expected"),
    [
        (None, "", dict(data_parallel=2, tensor_parallel=2), ["0", "1", "2", "3"]),
        (None, "4,5", dict(tensor_parallel=2), ["4", "5"]),
        ("4,5,6,7", "2,3", dict(tensor_parallel=2), ["6", "7"]),
        ("", "1", {}, []),  # none is to be used: nor by a server
    ],
)
def test_a_server_gets_gpus_of_those_that_the_run_was_given(
    monkeypatch, visible, serve, engine, expected
):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpus.of_server(*sections({"serve": serve}, **engine)) == expected


@pytest.mark.parametrize(
    ("layout", "engine", "message"),
    [
        ({"serve": "0,1"}, {"tensor_parallel": 4}, "names 2 GPUs"),
        ({}, {}, "train_memory=0.75"),
        ({"train": "0,1", "serve": "1"}, {}, "give layout.train and layout.serve diff"),
        ({"train_memory": 0.6, "serve_memory": 0.3}, {}, None),
        ({"train_memory": 0.8, "sleep": True}, {}, None),
    ],
)
def test_a_layout_has_gpus_and_memory_for_both(layout, engine, message):
    if message is None:
        return gpus.check_layout(*sections(layout, **engine))
    with pytest.raises(ValueError, match=message):
        gpus.check_layout(*sections(layout, **engine))


def test_a_server_elsewhere_or_on_gpus_of_its_own_is_apart():
    apart = {"train": "0", "serve": "1"}
    for layout, engine, expected in (
        (apart, {}, True),
        ({}, {}, False),
        ({}, {"url": "http://a:1"}, True),
    ):
        layout, engine = sections(layout, **engine)
        assert (gpus.num_apart(engine, layout) == 1) is expected


def test_jax_gets_its_gpus_and_its_share(monkeypatch):
    updates = {}
    monkeypatch.setattr(jax.config, "update", updates.__setitem__)
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.3"  # JAX takes no two
    gpus.take(settings.Layout(train="0,1", train_memory=0.6))
    assert updates == {"jax_cuda_visible_devices": "0,1"}
    assert [os.environ.get(name) for name in NAMES] == ["0.6", None]
