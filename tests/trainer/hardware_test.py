"""The share of the peak by hand, and devices that tell their memory or do not."""

import types

import jax.numpy as jnp
import numpy as np
import pytest

from tests.trainer import small
from vade_jax.models.qwen import flops
from vade_jax.trainer import hardware


@pytest.mark.parametrize(
    ("kind", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA GH200 480GB", 989),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA RTX A1000", 0),
        ("TPU v5 lite", 197),
        ("TPU v5", 459),
        ("cpu", 0),
    ],
)
def test_the_peak_by_the_name_of_the_device(kind, peak):
    assert hardware.peak_tflops(kind, jnp.dtype("bfloat16")) == peak
    assert hardware.peak_tflops(kind, jnp.dtype("float32")) == 0


def test_mfu_counts_prompts_once_and_valid_answers_alone():
    prompts = small.prompts(4)
    rollouts = small.rollouts([1, 0, 2, 1]).replace(valid_N=np.array([True, True, False, True]))
    length_M, length_N = [p.length for p in prompts], rollouts.length_N
    decoder = flops.decoder(small.SHAPE.text, length_M, length_N[[0, 1, 3]], [0, 2, 3])
    # Images of 2 x 3, none, 2 x 2 and 3 x 1, 4 x 5 cells; four patches each.
    tower = sum(
        flops.vision(small.SHAPE.vision, 64, 4 * cells, image_patches=4 * cells)
        for cells in (6, 4, 3, 20)
    )
    cost = dict(shape=small.SHAPE, forwards=5, vision_forwards=2)
    found = hardware.utilisation(prompts, rollouts, 3.0, **cost, peak=1e9)
    np.testing.assert_allclose(found["perf/mfu"], (5 * decoder + 2 * tower) / 3e9)

    assert hardware.utilisation(prompts, rollouts, 3.0, **cost, peak=0) == {}


def test_memory_is_that_of_the_fullest_device(monkeypatch):
    def devices(*stats):
        told = [types.SimpleNamespace(memory_stats=lambda s=s: s) for s in stats]
        monkeypatch.setattr(hardware.jax, "local_devices", lambda: told)

    devices({"peak_bytes_in_use": 3_000_000_000}, {"peak_bytes_in_use": 5_500_000_000})
    assert hardware.memory() == {"perf/max_memory_gb": 5.5}
    devices(None, {"bytes_in_use": 1})
    assert hardware.memory() == {}
