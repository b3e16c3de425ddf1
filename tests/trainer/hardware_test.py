"""What a step costs, by hand: seconds of a clock that ticks by hand, the share of the peak, memory."""

import types

import jax
import numpy as np
import pytest

from tests.trainer import small
from vade_jax.models.qwen import flops
from vade_jax.trainer import hardware


def test_seconds_of_each_part_and_tokens_a_second(monkeypatch):
    """A prompt's tokens count for each of its answers; a part that fails is timed."""
    now = [100.0]
    monkeypatch.setattr(hardware, "time", types.SimpleNamespace(perf_counter=lambda: now[0]))
    clock = hardware.Clock()
    with clock("gen"):
        now[0] += 4
    now[0] += 1  # part of the step, of no part
    with pytest.raises(OSError), clock("testing"):
        now[0] += 5
        raise OSError
    clock.seconds["gen_tail"] += 30  # at the same time
    prompts = small.prompts(2)
    rollouts = small.rollouts([1, 2]).replace(length_N=np.array([5, 1, 2]))
    tokens = 8 + prompts[0].length + 2 * prompts[1].length
    assert clock.metrics(prompts, rollouts, engine_devices=3) == {
        "timing_s/gen": 4,
        "timing_s/testing": 5,
        "timing_s/gen_tail": 30,
        "timing_s/step": 10,
        "perf/throughput": tokens / 10 / jax.device_count(),
        "perf/device_seconds": 10 * (jax.device_count() + 3),
    }


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
    cost = dict(shape=small.SHAPE, forwards=(5, 2))
    found = hardware.utilisation(prompts, rollouts, 3.0, **cost, peak=1e9)
    np.testing.assert_allclose(found["perf/mfu"], (5 * decoder + 2 * tower) / 3e9)
    assert hardware.utilisation(prompts, rollouts, 3.0, **cost, peak=0) == {}
