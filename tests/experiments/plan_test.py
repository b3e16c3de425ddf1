"""The time of a step by its parts, on devices that are only described."""

import jax
import pytest

from configs import qwen7b_gspo
from experiments.bench import plan, plan_programs, targets
from vade_jax import settings


def seconds(**layout):
    c = qwen7b_gspo.get_config()
    c.engine.name = "vllm_server"
    c.layout.update(layout)
    c.mesh.fsdp = 1
    run = settings.Run.from_dict(c.to_dict())
    policy = plan_programs.abstract_policy(run, jax.devices()[:1])
    device = plan.Device(targets.find("h100"))
    return plan.step_seconds(run, policy, plan_programs.typical(run), device)


def test_gpus_that_only_answer_make_the_answers():
    few, many = seconds(train="0", serve="1"), seconds(train="0", serve="1,2,3,4")
    assert few["prefill"] == pytest.approx(4 * many["prefill"])
    # Its groups are answered some at a time, so that rounds of them are whole.
    assert 3 < few["decode"] / many["decode"] < 5
    assert few["update"] == many["update"]
