"""Seconds and rates from a clock that ticks by hand."""

import types

import jax
import numpy as np
import pytest

from tests.trainer import small
from vade_jax.trainer import timing


@pytest.fixture
def wait(monkeypatch):
    """Returns a function that lets seconds pass."""
    now = [100.0]
    fake = types.SimpleNamespace(perf_counter=lambda: now[0])
    monkeypatch.setattr(timing, "time", fake)

    def wait(seconds):
        now[0] += seconds

    return wait


def test_each_part_and_the_whole_step(wait):
    clock = timing.Clock()
    with clock("gen"):
        wait(2)
    wait(1)  # part of the step, of no part
    with clock("reward"):
        wait(5)
    found = clock.metrics(small.prompts(1), small.rollouts([1]))
    timings = {name: s for name, s in found.items() if name.startswith("timing_s/")}
    assert timings == {
        "timing_s/gen": 2,
        "timing_s/reward": 5,
        "timing_s/step": 8,
        "timing_s/compile": 0,
    }
    assert found["perf/compilations"] == 0


def test_a_part_that_fails_is_timed(wait):
    clock = timing.Clock()
    with pytest.raises(OSError), clock("testing"):
        wait(3)
        raise OSError
    assert clock.seconds == {"testing": 3}


def test_a_part_beside_the_others_is_not_time_of_the_step(wait):
    clock = timing.Clock()
    with clock("gen"):
        wait(2)
    clock.add(judge=30)
    found = clock.metrics(small.prompts(1), small.rollouts([1]))
    assert (found["timing_s/judge"], found["timing_s/step"]) == (30, 2)


def test_counts_the_programs_that_xla_compiles():
    clock = timing.Clock()
    with clock("gen"):
        double = jax.jit(lambda x: 2 * x)
        for size in (3, 3, 4):
            double(np.ones(size))
    found = clock.metrics(small.prompts(1), small.rollouts([1]))
    assert found["perf/compilations"] == 2
    assert 0 < found["timing_s/compile"] <= found["timing_s/step"]


def test_a_prompt_counts_for_each_of_its_answers(wait):
    clock = timing.Clock()
    with clock("gen"):
        wait(4)
    wait(6)
    prompts = small.prompts(2)
    length = [prompt.length for prompt in prompts]
    rollouts = small.rollouts([1, 2]).replace(length_N=np.array([5, 1, 2]))
    found = clock.metrics(prompts, rollouts)
    total = 8 + length[0] + 2 * length[1]
    assert found["perf/throughput"] == total / 10 / jax.device_count()
    assert found["perf/device_seconds"] == 10 * jax.device_count()
    alone = clock.metrics(prompts, rollouts, engine_devices=3)["perf/device_seconds"]
    assert alone == 10 * (jax.device_count() + 3)
    assert found["perf/gen_tokens_per_s"] == 8 / 4
