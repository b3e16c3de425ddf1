"""Plans by hand, and of programs that a CPU compiles."""

import dataclasses
import types

import jax
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from configs import qwen7b_gspo, tiny_gspo
from experiments.bench import plan, programs, targets, workload
from tests.trainer import small
from vade_jax import settings
from vade_jax.models.qwen import flops, model, presets
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
    compiled = {names[name]: programs.Program(*x, {}) for name, x in compiled.items()}
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
    shape = build.batch_shape(run, policy.mesh)
    (batch,) = minibatches.split(prompts, rollouts, small.advantages(32), shape)
    sizes = lambda batch: jax.tree.map(lambda x: (x.shape, x.dtype), batch)
    assert sizes(planned) == sizes(batch)


def test_an_adapter_has_a_base_in_bfloat16_and_moments_of_its_own():
    run = tiny(lora__rank=4, lora__targets="o_proj")
    policy = workload.abstract_policy(run, jax.devices()[:1])
    needs = plan.memory(run, policy, {programs.UPDATE: programs.Program(10**9, 0, 0, {})})
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


@pytest.mark.parametrize(
    ("program", "fix"),
    [("update", "batch.prompts_per_microbatch=4"), ("decode", "more devices")],
)
def test_a_program_that_a_tpu_compiler_refuses_is_a_problem(monkeypatch, program, fix):
    def refuse(*_):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: 20.67G of 15.75G.")

    run = tiny(engine__prompts_per_call=1)
    names = {"update": programs.UPDATE, "decode": programs.DECODE}
    monkeypatch.setattr(programs, "names", lambda _: [names[program]])
    monkeypatch.setattr(programs, "lowered", refuse)
    report = plan.make(run, jax.devices()[:1], H200)
    assert not report.fits and fix in report.problems[0]
    assert report.text.splitlines()[-1] == f"does not fit: {report.problems[0]}"


@pytest.mark.parametrize(
    ("num_devices", "changes", "message"),
    [
        (4, {"mesh__tensor": 4, "mesh__fsdp": 1}, "tensor=4"),
        (3, {}, "fsdp"),
        (4, {"batch__prompts_per_microbatch": 2}, "prompts_per_microbatch=2"),
        (1, {"batch__answers_per_row": 1}, "answers_per_row=1"),
    ],
)
def test_settings_that_cannot_be_planned(num_devices, changes, message):
    with pytest.raises(ValueError, match=message):
        plan.make(tiny(**changes), jax.devices()[:num_devices], H200)


@pytest.mark.parametrize(("name", "noted"), [("h200", True), ("v5p", False)])
def test_a_described_gpu_has_no_host_memory_and_the_plan_says_so(monkeypatch, name, noted):
    run, target = tiny(layout__offload="all"), targets.TARGETS[name]
    report = planned(monkeypatch, run, target, update=(10**6, 0, 10**6))
    assert ("no host memory" in report.text) == noted


def test_tpus_do_not_serve_vllm_beside_the_trainer():
    with pytest.raises(ValueError, match="TPUs"):
        plan.make(tiny(engine__name="vllm_server"), jax.devices(), targets.TARGETS["v5p"])


def test_the_floor_of_what_is_sent():
    """One matrix of 8 x 4 over fsdp 2, tensor 2; a norm of 8; the head, which is the embedding."""
    devices = mesh.make(data=2, fsdp=2, tensor=2)
    params = {"query": {"kernel": (8, 4)}, "norm": {"scale": (8,)}, "embedding": (4, 8)}
    is_shape = lambda x: isinstance(x, tuple)
    params = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x, "float32"), params, is_leaf=is_shape)
    specs = {
        "query": {"kernel": P("fsdp", "tensor")},
        "norm": {"scale": P()},
        "embedding": P("tensor", "fsdp"),
    }
    policy = types.SimpleNamespace(
        mesh=devices,
        params=params,
        shardings=jax.tree.map(lambda x: NamedSharding(devices, x), specs),
        shape=types.SimpleNamespace(tie_embeddings=True),
        dtype="bfloat16",
        adapter=None,
        base={},
        base_shardings={},
    )
    # Both matrices have 8 values here: gathered, 2 bytes each.
    assert programs.floor(policy, 3, backward=False) == 3 * (16 + 16)
    # Twice gathered, and gradients of 2 and 4 bytes scattered; over fsdp the norm's 8 of 4 bytes are
    # summed, and over data all: 2 x 1/2 of 16, 32 and 32 bytes.
    update = (2 * 16 + 16) + (2 * 16 + 32) + 32 + (16 + 32 + 32)
    assert programs.floor(policy, 3, backward=True) == 3 * update


def test_the_flops_of_a_plan_by_hand():
    """16 prompts and 32 answers, with every part of the step."""
    run = tiny(num_rollouts=2, loss__kl_coef=0.0, loss__old_logp="trainer")
    shape, lengths = presets.PRESETS["tiny"], workload.Lengths(20, 5, (4, 4))
    work = plan.step_flops(run, shape, lengths)
    tower = flops.vision(shape.vision, shape.text.width, 16 * 64)
    forward = tower + flops.grouped(shape.text, 16, 32, prompt=20, answer=5)
    assert work["old log-probs"] == forward and work["reference log-probs"] == 0
    assert work["update"] == 3 * forward
    assert work["prefill"] + work["decode"] == forward + flops.head(shape.text, 16)


def test_a_step_made_ahead_takes_the_longer_of_answering_and_learning():
    apart = {"engine__name": "vllm_server", "layout__train": "0", "layout__serve": "1"}
    for learning, ahead in ((5.0, 5.0), (1.5, 3.0)):
        parts = {"prefill": 1.0, "decode": 2.0, "update": learning}
        totals = plan.whole_steps(tiny(**apart), parts)
        assert totals == {"step": 3.0 + learning, "step, engine.max_lag=1": ahead}
    assert plan.whole_steps(tiny(), parts) == {"step": 4.5}


def test_gpus_that_only_answer_make_the_answers():
    def seconds(**layout):
        c = qwen7b_gspo.get_config()
        c.layout.update(layout)
        c.mesh.fsdp = 1
        run = settings.Run.from_dict(c.to_dict())
        policy = workload.abstract_policy(run, jax.devices()[:1])
        return plan.step_seconds(run, policy, workload.typical(run), targets.find("h100"))

    few, many = seconds(train="0", serve="1"), seconds(train="0", serve="1,2,3,4")
    assert few["prefill"] == pytest.approx(4 * many["prefill"])
    # Its groups are answered some at a time, so that rounds of them are whole.
    assert 3 < few["decode"] / many["decode"] < 5
    assert few["update"] == many["update"]


def test_the_largest_image():
    assert workload.image_cells(1003520, 14) == (32, 40)
    assert workload.image_cells(112 * 112, 14) == (4, 4)


@pytest.mark.parametrize(
    ("name", "count", "message"),
    [("b200", 1, "b200"), ("v5p", 3, "a slice has 1, 4"), ("h100", 9, "8 to a host")],
)
def test_devices_that_do_not_exist(name, count, message):
    with pytest.raises(ValueError, match=message):
        targets.devices(name, count)


@pytest.mark.parametrize(("name", "extra"), [("v5e", "tpu"), ("h200", "cuda")])
def test_a_compiler_that_is_not_installed_is_named(monkeypatch, name, extra):
    monkeypatch.setattr(targets.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=rf"pip install -e '.\[{extra}\]'"):
        targets.devices(name, 4)
