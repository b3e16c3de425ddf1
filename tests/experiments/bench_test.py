"""Each suite of the bench runs, at sizes where only that is learned; plans by hand."""

import dataclasses
import json
import math
import shutil
import types

import jax
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from configs import tiny_gspo
from experiments.bench import __main__ as command
from experiments.bench import (
    decode,
    families,
    host,
    long,
    overlap,
    plan,
    plan_programs,
    selectors,
    targets,
    timing,
    update,
    workload,
)
from tests.run.selectors_test import fake_parts  # noqa: F401 (a fixture)
from tests.trainer import small
from vade_jax import settings
from vade_jax.models.qwen import flops, model, presets, tiny_checkpoint
from vade_jax.rewards import verify
from vade_jax.rollout import local
from vade_jax.run import build
from vade_jax.trainer import mesh, minibatches


@pytest.fixture(scope="module", autouse=True)
def small_matmul():
    """The speed of the machine is no matter here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "MATMUL_SIZE", 64)
        yield


def rows(found):
    return [row for table in found for row in table.rows]


def check(found):
    """Every table has rows, and every row that ran has a time, a ratio and a floor."""
    assert all(table.rows[0].ratio == 1 for table in found)
    for row in rows(found):
        assert row.floor > 0
        assert row.seconds is None or (row.seconds > 0 and row.ratio > 0)
    assert all(row.name in str(table) for table in found for row in table.rows)


def test_a_table_by_hand():
    times = {"a": 0.5, "bc": 1e-3}
    table = timing.table("title", times, {"a": 0.25}, "f", notes={"a": "why"})
    lines = str(table).splitlines()
    assert [lines[i] for i in (0, 1, 6, 7)] == ["title", "", "", "floor: f"]
    header, rule, a, bc = ([x.strip() for x in line.split("|")[1:-1]] for line in lines[2:6])
    assert header == ["", "time", "x ours", "floor", "floor/time", ""]
    assert [x[-1:] for x in rule] == ["-", ":", ":", ":", ":", "-"]
    assert a == ["a", "500 ms", "1.00", "250 ms", "50%", "why"]
    assert bc == ["bc", "1 ms", "0.00", "-", "-", ""]
    assert len({len(line) for line in lines[2:6]}) == 1  # aligned


def test_draws():
    check(list(selectors.draws(quick=True)))


@pytest.mark.usefixtures("fake_parts")
def test_steps_of_selectors(monkeypatch):
    """The step is one of the loop after the other, here without a model, which takes long to compile."""
    (state, learn), steps = build.make_learner(), []

    def recorded(state, *batch):
        steps.append(int(state.step))
        return learn(state, *batch)

    monkeypatch.setattr(build, "load_policy", lambda run, model: None)
    monkeypatch.setattr(build, "make_learner", lambda *_, **__: (state, recorded))
    copy = lambda directory, *_: shutil.copytree(tiny_checkpoint.READER_FILES, directory)
    monkeypatch.setattr(tiny_checkpoint, "write", copy)
    (table,) = selectors.steps(quick=True)
    assert steps == list(range(len(steps))) and len(steps) > 2
    *of_selectors, step = table.rows
    check([dataclasses.replace(table, rows=of_selectors)])
    few = ("vade", "mmr1", "sec")
    assert {row.name for row in of_selectors} == {
        f"{x} {y}" for x in few for y in ("propose", "update")
    }
    assert step.name == selectors.STEP and step.seconds > 0
    assert of_selectors[0].note == f"{of_selectors[0].seconds / step.seconds:.1%} of that step"


@pytest.mark.slow  # tests/trainer has the same equality
def test_grouped_and_plain_take_the_same_step():
    updates = list(update.run(quick=True))
    check(updates)
    facts = {row.name: row.facts for row in updates[0].rows}
    grouped, plain = facts[update.GROUPED], facts[update.PLAIN]
    assert abs(grouped["loss"]) > 1e-2
    assert grouped["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    assert grouped["gradient"] == pytest.approx(plain["gradient"], rel=1e-5)
    # TRL and prefix_grouper, where they are installed.
    for peer in facts.keys() - {update.GROUPED, update.PLAIN}:
        if facts[peer]:
            assert facts[peer]["loss"] == pytest.approx(grouped["loss"], rel=1e-4), peer
            assert facts[peer]["gradient"] == pytest.approx(grouped["gradient"], rel=1e-3), peer


@pytest.mark.slow  # compiles two updates
def test_both_families_take_a_step_on_equal_pixels():
    (table,) = families.run(quick=True)
    check([table])
    notes = {row.name: row.note for row in table.rows}
    assert notes["Qwen2.5-VL"].startswith("64 tokens") and notes["Qwen3-VL"].startswith("49 ")


def test_the_parts_of_an_update_can_be_traced():
    """Forward and backward, without weights or a compiler."""
    shape = workload.text_model(**update.SMALL)
    sizes = workload.Sizes(num_prompts=2, group_size=2, prompt=16, answer=8)
    graphdef, params = model.graph(shape), model.abstract(shape)
    logp = update.make_logp(lambda params: model.merge(graphdef, params))
    total = update.total_logp(logp, workload.grouped_batch(shape, sizes))
    assert jax.eval_shape(total, params).shape == ()
    assert jax.eval_shape(jax.grad(total), params) == params


@pytest.mark.slow  # tests/rollout has the same equality
def test_decode(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", small.SHAPE)
    found = list(decode.run(quick=True))
    check(found)
    facts = found[0].rows[0].facts
    assert facts["same_tokens"] == 1
    assert facts["tokens_per_second"] > 0


def test_overlap():
    ahead, turns = rows(overlap.run(quick=True))
    assert (ahead.name, turns.name) == ("a step ahead", "in turns")
    # Of the floors, which are no measurements: answers and updates at once, or one after another.
    learn, sync = 0.1 * overlap.LEARN_S, 0.1 * overlap.SYNC_S
    longest = max(turns.floor - learn - sync, learn)
    assert ahead.floor < turns.floor and ahead.floor > longest


def test_images(monkeypatch):
    monkeypatch.setitem(presets.PRESETS, "tiny", small.SHAPE)
    speed, steps = host.images(quick=True)
    assert len(speed.rows) == 4 and "images/s" in speed.rows[0].note
    assert steps.rows[0].name == "10 steps of 4"
    assert steps.rows[0].facts["early_bytes"] > 2**20


def test_verdicts(tmp_path):
    """What the suite calls right in other words is right; the JSON holds every row."""
    verdicts = list(host.verdicts(quick=True))
    names = ["64 answers, no formulas", "4 formulas, a worker"]
    names += [f"{kind}{rest}" for kind in host.VARIED for rest in ("", ", math-verify")]
    assert [row.name for row in rows(verdicts)] == names
    cases = {**host.ANSWERS, "expr": host.FORMULAS}
    for kind, (answer, said) in cases.items():
        found = [verify.verify(rf"\boxed{{{text}}}", answer, kind) for text in said]
        assert [x.correct for x in found] == [True, True, False], kind
    for kind, (answer, given) in host.VARIED.items():
        text = given.format(7)
        assert verify.verify(rf"\boxed{{{text}}}", answer.format(7), kind.partition(",")[0]).correct
    path = tmp_path / "bench.json"
    timing.write_json(str(path), "a machine", {"verify": verdicts})
    content = json.loads(path.read_text())
    assert content["machine"] == "a machine"
    stored = [row["name"] for t in content["suites"]["verify"] for row in t["rows"]]
    assert stored == names


def test_a_suite_that_fails_leaves_the_tables_before_it(tmp_path, capsys):
    tables = [timing.table(name, {"a": 0.5}, {}, "f") for name in ("first", "second")]

    def fails(quick):
        yield tables[1]
        raise RuntimeError("out of memory")

    path = tmp_path / "new" / "bench.json"
    with pytest.raises(RuntimeError, match="out of memory"):
        timing.run({"good": lambda quick: tables[:1], "bad": fails}, True, str(path))
    suites = json.loads(path.read_text())["suites"]
    assert [table["title"] for found in suites.values() for table in found] == ["first", "second"]
    assert str(tables[1]) in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        timing.run({"good": fails}, True, str(path / "a.json"))  # its directory is a file
    assert "error: " in capsys.readouterr().err


def test_a_long_run():
    (table,) = long.run(quick=True)
    assert [row.name for row in table.rows[1:]] == [
        *("metrics are read", "the report is written", "the run resumes"),
    ]
    facts = table.rows[0].facts
    assert facts["median_ms"] > 0 and facts["cpu_ms"] > 0


def test_what_a_step_takes_and_leaves_by_hand():
    """20 steps of 3 ms and 2 ms of CPU, half a MB in ten of them; the first two compile."""
    seconds_S2 = np.array([(-9.0, -9.0)] * 2 + [(3e-3 * i, 2e-3 * i) for i in range(18)])
    late = [(i * 2**19, 40 + (i > 9), 7) for i in range(18)]
    facts = long._facts(seconds_S2, np.array([(2**40, 1, 1)] * 2 + late))
    expected = dict(mean_ms=3, median_ms=3, cpu_ms=2, mb_per_1000=50, files=1, threads=0)
    assert facts == pytest.approx(expected)


# ------------------------------------------------------------------------------ plan
H200 = plan.Device(targets.TARGETS["h200"])


def tiny(**changes):
    """Returns the settings of the smoke job with a few fields, in dotted names, changed."""
    c = tiny_gspo.get_config("smoke")
    c.model.dtype = "bfloat16"
    c.batch.prompts_per_minibatch, c.batch.prompts_per_microbatch = 16, 8
    c.num_prompts, c.engine.prompts_per_call = 16, 8
    c.update_from_flattened_dict({k.replace("__", "."): v for k, v in changes.items()})
    return settings.Run.from_dict(c.to_dict())


@pytest.mark.slow  # compiles for eight devices
def test_what_a_plan_needs_is_what_the_devices_hold():
    """The tiny model over 8 devices: matrices are split, norms and small biases are not."""
    report = plan.make(tiny(), jax.devices(), H200)
    params = model.abstract(presets.PRESETS["tiny"])
    whole = sum(4 * x.size for x in jax.tree.leaves(params))
    vectors = sum(
        4 * leaf.size
        for path, leaf in jax.tree.leaves_with_path(params)
        if mesh.path_name(path).endswith(("bias", "scale"))
    )
    weights = (whole - vectors) / 8 + vectors
    needs = report.needs
    assert needs["weights"] == weights
    assert needs["optimizer"] == 2 * weights + 8  # two counters
    assert needs["reference policy"] == weights / 2  # bfloat16
    assert needs["temporaries of the update, gradients among them"] > 2 * weights
    assert needs[plan.VLLM] == 0
    assert min(needs.values()) >= 0
    assert report.fits and "fits:" in report.text and "does not" not in report.text


@pytest.mark.parametrize(("per_row", "rows", "answers"), [(0, None, 6 * 4), (2, 16, 16 * 2)])
def test_planned_decoding_has_the_rows_of_uneven_groups(monkeypatch, per_row, rows, answers):
    """Of six prompts with 24 answers: in rows of two 6 + 18 / 2 at most, made even for two devices."""
    run = tiny(num_rollouts=4, engine__prompts_per_call=6, batch__answers_per_row=per_row)
    policy = plan_programs.abstract_policy(run, jax.devices()[:2])
    asked = []
    program = types.SimpleNamespace(lower=lambda *args, **_: asked.extend(args))
    monkeypatch.setattr(local, "compile_answers", lambda *_, **__: program)
    plan_programs._decoding(run, policy, plan_programs.Lengths(64, 5, (4, 4)))
    _, _, prompts, group_R, answer_N, _ = asked
    assert (group_R and group_R.shape) == (rows and (rows,))
    assert (prompts.token_MP.shape[0], answer_N.shape) == (6, (answers,))


@pytest.mark.parametrize("per_row", [0, 2])
@pytest.mark.parametrize("num_prompts", [4, 8])
def test_a_planned_batch_is_what_a_run_makes_of_groups(per_row, num_prompts):
    """In rows of G answers, and in smaller ones, which leave room for uneven groups."""
    sizes = {"num_prompts": num_prompts, "num_rollouts": 4}
    sizes |= {"batch__prompts_per_minibatch": num_prompts, "batch__prompts_per_microbatch": 4}
    run = tiny(**sizes, batch__answers_per_row=per_row)
    policy = plan_programs.abstract_policy(run, jax.devices()[:4])
    planned = plan_programs.abstract_batch(run, policy, plan_programs.Lengths(64, 5, (4, 4)))
    rollouts = small.rollouts([4] * num_prompts, T=5)
    shape = build.batch_shape(run, policy.mesh)
    prompts, advantage_N = small.prompts(num_prompts), small.advantages(4 * num_prompts)
    (made,) = minibatches.split(prompts, rollouts, advantage_N, shape)
    for name in ("token_NT", "mask_NT", "advantage_N", "group_R"):
        found, want = planned[name], made[name]
        assert (found and found.shape) == (None if want is None else want.shape), name


@pytest.mark.parametrize("preset", ["tiny", "tiny_qwen2.5"])
def test_copies_of_stacks_are_remarked_with_and_without_a_vision_tower(preset):
    policy = plan_programs.abstract_policy(tiny(model__preset=preset), jax.devices()[:1])
    layer = "f32[{},4096,4096]{{2,1,0}} copy(%x)"
    copies = [f"  %copy.{n} = {layer.format(n)}" for n in (3, policy.shape.text.num_layers)]
    text = "\n".join(["ENTRY %main.1 (x: f32[4]) -> f32[4] {", *copies, "}"])
    (remark,) = plan_programs._remarks(policy, text, [], [])
    assert remark == "copy of a stack of layers, f32[4,4096,4096]: 0.27 GB"


def test_an_adapter_has_a_base_in_bfloat16_and_moments_of_its_own():
    run = tiny(lora__rank=4, lora__targets="o_proj")
    policy = plan_programs.abstract_policy(run, jax.devices()[:1])
    nothing = plan_programs.Program(10**9, 0, 0, collectives=[], seconds=1.0, remarks=[])
    needs = plan_programs.memory(run, policy, {plan_programs.UPDATE: nothing})
    adapter = 4 * (128 * 4 + 4 * 128)  # layers x (A + B)
    whole = sum(x.size for x in jax.tree.leaves(model.abstract(presets.PRESETS["tiny"])))
    assert needs["base of the adapter"] == 2 * whole
    assert needs["weights"] == needs["reference policy"] == 4 * adapter
    assert needs["optimizer"] == 2 * 4 * adapter + 8
    assert needs["inputs and outputs of the update"] == 10**9 - 2 * whole - 3 * 4 * adapter - 8


def test_a_step_made_ahead_takes_the_longer_of_answering_and_learning():
    apart = {"engine__name": "vllm_server", "layout__train": "0", "layout__serve": "1"}
    for learning, ahead in ((5.0, 5.0), (1.5, 3.0)):
        parts = {"prefill": 1.0, "decode": 2.0, "update": learning}
        found = plan.whole_steps(tiny(**apart), parts)
        assert found == {"step": 3.0 + learning, "step, engine.max_lag=1": ahead}
    assert plan.whole_steps(tiny(), parts) == {"step": 4.5}


def test_a_small_device_does_not_fit_and_says_what_to_change(monkeypatch):
    needed = plan_programs.Program(10**6, 10**6, 10**8, collectives=[], seconds=1.0, remarks=["!"])
    monkeypatch.setattr(plan, "compiled", lambda *_: {plan_programs.UPDATE: needed})
    small = dataclasses.replace(H200.target, memory_gb=0.01)
    report = plan.make(tiny(), jax.devices()[:1], plan.Device(small, vllm_fraction=0.001))
    assert "note: update: !" in report.text
    assert not report.fits and report.text.count("does not fit") == 2
    whole, vllm = report.problems
    assert "prompts_per_microbatch=4" in whole
    assert vllm.startswith("vLLM's 0.0 GB") and "weights" in vllm
    assert report.needs[plan.VLLM] == 0.001 * 0.01 * plan.GB


@pytest.mark.parametrize(
    ("program", "fix"),
    [
        (plan_programs.UPDATE, "batch.prompts_per_microbatch=4"),
        (plan_programs.DECODE, "engine.prompts_per_call="),
    ],
)
def test_a_program_that_a_tpu_compiler_refuses_is_a_problem_and_no_traceback(
    monkeypatch, program, fix
):
    def refuse(*_):
        said = "RESOURCE_EXHAUSTED: Ran out of memory on HBM, 20.67G of 15.75G."
        raise jax.errors.JaxRuntimeError(said)

    monkeypatch.setattr(plan_programs, "names", lambda _: [program])
    monkeypatch.setattr(plan_programs, "lowered", lambda *_: "lowered")
    monkeypatch.setattr(plan_programs, "measure", refuse)
    report = plan.make(tiny(), jax.devices()[:1], H200)
    assert not report.fits
    start = f"{program}: Ran out of memory on HBM, 20.67G of 15.75G. Try {fix}"
    assert report.problems[0].startswith(start)
    assert report.text.splitlines()[-1] == f"does not fit: {report.problems[0]}"


def test_decoding_that_does_not_fit_beside_the_state_takes_fewer_prompts(monkeypatch):
    programs = {
        plan_programs.UPDATE: plan_programs.Program(10**6, 0, 10**6, [], 1.0, []),
        plan_programs.DECODE: plan_programs.Program(10**6, 0, 10**9, [], 1.0, []),
    }
    monkeypatch.setattr(plan, "compiled", lambda *_: programs)
    small = plan.Device(dataclasses.replace(H200.target, memory_gb=0.5))
    (problem,) = plan.make(tiny(), jax.devices()[:1], small).problems
    assert problem.endswith("try engine.prompts_per_call=4")


@pytest.mark.parametrize(
    ("num_devices", "changes", "message"),
    [
        (4, {"mesh__tensor": 4, "mesh__fsdp": 1}, r"tensor=4 does not divide .* 2 key/value"),
        (3, {}, "128 is not divisible by 3, the mesh's fsdp"),
        (4, {"batch__prompts_per_microbatch": 2}, "prompts_per_microbatch=2 is not divisible"),
    ],
)
def test_devices_that_do_not_divide(num_devices, changes, message):
    with pytest.raises(ValueError, match=message):
        plan.make(tiny(**changes), jax.devices()[:num_devices], H200)


@pytest.mark.parametrize(("name", "noted"), [("h200", True), ("v5p", False)])
def test_a_described_gpu_has_no_host_memory_and_the_plan_says_so(monkeypatch, name, noted):
    nothing = plan_programs.Program(10**6, 0, 10**6, [], 1.0, [])
    monkeypatch.setattr(plan, "compiled", lambda *_: {plan_programs.UPDATE: nothing})
    device = plan.Device(targets.TARGETS[name])
    report = plan.make(tiny(layout__offload="all"), jax.devices()[:1], device)
    assert ("no host memory" in report.text) == noted


def test_tpus_do_not_serve_vllm_beside_the_trainer():
    device = plan.Device(targets.TARGETS["v5p"])
    with pytest.raises(ValueError, match=r"vLLM shares the devices .* they are TPUs"):
        plan.make(tiny(engine__name="vllm_server"), jax.devices(), device)


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
    assert plan_programs.floor(policy, 3, backward=False) == 3 * (16 + 16)
    # Twice gathered, and gradients of 2 and 4 bytes scattered; over fsdp the norm's 8 of 4 bytes are
    # summed, and over data all: 2 x 1/2 of 16, 32 and 32 bytes.
    update = (2 * 16 + 16) + (2 * 16 + 32) + 32 + (16 + 32 + 32)
    assert plan_programs.floor(policy, 3, backward=True) == 3 * update


@pytest.mark.parametrize("share", [0.0, -1.0, 1.01, math.nan])
def test_no_device_reaches_none_or_more_than_its_peak(share):
    wrong = pytest.raises(flags.IllegalFlagValueError, match=r"mfu=.*: must be above 0 and at most")
    with wrong, flagsaver.flagsaver((command.MFU, share)):
        pass
    with flagsaver.flagsaver((command.MFU, 1.0)):
        pass


def test_the_flops_of_a_plan_by_hand():
    """16 prompts and 32 answers, with every part of the step."""
    run = tiny(num_rollouts=2, loss__kl_coef=0.0, loss__old_logp="trainer")
    shape, lengths = presets.PRESETS["tiny"], plan_programs.Lengths(20, 5, (4, 4))
    text = shape.text
    work = plan.step_flops(run, shape, lengths)
    tower = flops.vision(shape.vision, text.width, 16 * 64)
    forward = tower + flops.grouped(text, 16, 32, prompt=20, answer=5)
    assert work["old log-probs"] == forward and work["reference log-probs"] == 0
    assert work["update"] == 3 * forward
    assert work["prefill"] + work["decode"] == forward + flops.head(text, 16)


def test_the_largest_image():
    assert plan_programs.image_cells(1003520, 14) == (32, 40)
    assert plan_programs.image_cells(112 * 112, 14) == (4, 4)
