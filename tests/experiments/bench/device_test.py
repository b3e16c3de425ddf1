"""What runs on a device: the programs of a plan."""

import jax
import pytest

from configs import tiny_grpo
from experiments.bench import device, workload
from experiments.bench.programs import DECODE, SCORE, UPDATE
from tests.trainer import small
from vade_jax.models.qwen import presets
from vade_jax.trainer import hardware


@pytest.fixture(autouse=True)
def small_models(monkeypatch):
    """The smallest models, and what would have a process of its own stays in this one."""
    monkeypatch.setitem(presets.PRESETS, "tiny", small.SHAPE)
    monkeypatch.setattr(workload, "alone", lambda function, *arguments: function(*arguments))


def values():
    """Returns the smoke job's settings, for as many devices as there are."""
    c, ways = tiny_grpo.get_config("smoke"), jax.device_count()
    c.num_prompts = c.batch.prompts_per_minibatch = 2 * ways
    c.batch.prompts_per_microbatch = c.engine.prompts_per_call = ways
    c.num_rollouts, c.sampling.max_tokens, c.data.max_prompt_length = 2, 4, 64
    return c.to_dict()


@pytest.mark.parametrize("name", [UPDATE, SCORE, DECODE])
def test_a_program_of_the_plan_runs(name, monkeypatch):
    """The batch has the shapes that it was compiled for, and what comes out is finite."""
    monkeypatch.setattr(hardware, "peak_flops", lambda *_: 1e12 * jax.device_count())
    (facts,) = device.measure_program(values(), name, 1)
    ways = jax.device_count()
    assert facts["seconds"] > 0 and 0 < facts["mfu"] < 1 and facts["plan_bytes"] > 0
    # Prompts of 64 tokens and two answers of 4 to each; decoding counts answers alone.
    if name == DECODE:
        assert 0 < facts["tokens"] <= ways * 2 * 4
    else:
        assert facts["tokens"] == 2 * ways * (128 + 2 * 4)
    if name == UPDATE:
        assert facts["metrics"]["actor/grad_norm"] > 0
    if name == SCORE:
        assert -30 < facts["metrics"]["mean log-prob"] < 0
