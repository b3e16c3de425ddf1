"""Plans by hand, and of programs that a CPU compiles."""

import dataclasses

import jax
import pytest

from configs import qwen3_5_4b, tiny_gspo
from experiments.bench import plan, programs, targets, workload
from tests.trainer import small
from vade_jax import settings
from vade_jax.models.qwen import model, presets
from vade_jax.run import build
from vade_jax.trainer import mesh, minibatches

H200 = targets.TARGETS["h200"]


def tiny(**changes):
    """Returns the settings of the smoke job with a few fields, in dotted names, changed."""
    c = tiny_gspo.get_config("smoke")
    c.model.dtype = "bfloat16"
    c.batch.prompts_per_minibatch, c.batch.prompts_per_microbatch = 16, 8
    c.num_prompts, c.engine.prompts_per_call = 16, 8
    c.update_from_flattened_dict({k.replace("__", "."): v for k, v in changes.items()})
    return settings.Run.from_dict(c.to_dict())


def planned(monkeypatch, run, target=H200, **compiled):
    """Returns the plan of a run whose programs need so many bytes."""
    names = {"update": programs.UPDATE, "decode": programs.DECODE}
    compiled = {names[name]: programs.Program(*x) for name, x in compiled.items()}
    monkeypatch.setattr(programs, "names", lambda _: [*compiled])
    monkeypatch.setattr(programs, "lowered", lambda run, policy, name: name)
    monkeypatch.setattr(programs, "measure", lambda name, *_: compiled[name])
    return plan.make(run, jax.devices()[:1], target)


def test_what_a_plan_needs_is_what_the_devices_hold(monkeypatch):
    """The smallest model over 8 devices: matrices are split, norms and small biases are not."""
    monkeypatch.setitem(presets.PRESETS, "tiny", small.SHAPE)
    report = plan.make(
        tiny(engine__name="vllm_server", layout__serve_memory=0.25), jax.devices(), H200
    )
    sizes = [
        (4 * x.size, mesh.path_name(path).endswith(("bias", "scale")))
        for path, x in jax.tree.leaves_with_path(model.abstract(small.SHAPE))
    ]
    weights = sum(size if is_vector else size / 8 for size, is_vector in sizes)
    needs = report.needs
    assert needs["weights"] == weights
    assert needs["optimizer"] == 2 * weights + 8  # two counters
    assert needs["reference policy"] == weights / 2  # bfloat16
    assert needs["temporaries of the update, gradients among them"] > weights
    assert needs[plan.VLLM] == pytest.approx(0.25 * 1e9 * H200.memory_gb)
    assert min(needs.values()) >= 0
    assert report.fits and "fits:" in report.text and "does not" not in report.text
    assert "| update " in report.text and "| log-probs " in report.text


def test_a_planned_batch_is_what_a_run_makes_of_groups():
    run = tiny(
        num_prompts=8,
        num_rollouts=4,
        batch__prompts_per_minibatch=8,
        batch__prompts_per_microbatch=4,
    )
    policy = workload.abstract_policy(run, jax.devices()[:4])
    planned, lengths = workload.abstract_batch(run, policy), workload.largest(run)
    rollouts = small.rollouts([4] * 8, T=lengths.answer)
    prompts = workload.full_prompts(policy.shape, lengths, 8)
    cut = build.batch_sizes(run, policy.mesh)
    (batch,) = minibatches.split(prompts, rollouts, small.advantages(32), **cut)
    sizes = lambda batch: jax.tree.map(lambda x: (x.shape, x.dtype), batch)
    assert sizes(planned) == sizes(batch)


def test_an_adapter_has_a_base_in_bfloat16_and_moments_of_its_own():
    run = tiny(lora__rank=4, lora__targets="o_proj")
    policy = workload.abstract_policy(run, jax.devices()[:1])
    needs = plan.memory(run, policy, {programs.UPDATE: programs.Program(10**9, 0, 0)})
    adapter = 4 * (128 * 4 + 4 * 128)  # layers x (A + B)
    weights = sum(x.size for x in jax.tree.leaves(model.abstract(presets.PRESETS["tiny"])))
    assert needs["base of the adapter"] == 2 * weights
    assert needs["weights"] == needs["reference policy"] == 4 * adapter
    assert needs["optimizer"] == 2 * 4 * adapter + 8
    assert needs["inputs and outputs of the update"] == 10**9 - 2 * weights - 3 * 4 * adapter - 8


def test_what_does_not_fit_says_what_to_change(monkeypatch):
    small_device = dataclasses.replace(H200, memory_gb=0.5)
    serving = tiny(engine__name="vllm_server", layout__serve_memory=0.001)
    report = planned(monkeypatch, serving, small_device, update=(10**6, 10**6, 10**9))
    memory, vllm = report.problems
    assert not report.fits and report.text.count("does not fit") == 2
    assert "prompts_per_microbatch=4" in memory
    assert "layout.serve_memory or engine.tensor_parallel" in vllm
    sizes = {"update": (10**6, 0, 10**6), "decode": (10**6, 0, 10**9)}
    (problem,) = planned(monkeypatch, tiny(), small_device, **sizes).problems
    assert problem.endswith("try engine.prompts_per_call=4")


def test_a_server_keeps_keys_of_full_layers_alone_and_a_memory_for_each_answer(monkeypatch):
    c = qwen3_5_4b.get_config("single")
    c.layout.serve_memory = 0.01
    run = settings.Run.from_dict(c.to_dict())
    *_, problem = planned(monkeypatch, run, update=(10**6, 0, 0)).problems
    keys = 8 * 4 * 4 * 256 * (8192 + 8 * 2048)  # of 8 layers with 4 heads of 256, in bfloat16
    memories = 8 * 24 * 4 * 32 * 128 * 128  # 8 answers, 24 layers with 32 heads, in float32
    assert f"one group ({(keys + memories) / 1e9:.1f} GB)" in problem
