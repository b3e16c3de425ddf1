"""Each suite of the bench runs, at sizes where only that is learned."""

import json

import jax
import pytest

from configs import tiny_gspo
from experiments import bench
from experiments.benchmarks import (
    data,
    decode,
    flops,
    plan,
    plan_memory,
    plan_shapes,
    plan_time,
    sampler,
    selector,
    tables,
    timing,
    update,
    verify,
    workload,
)
from tests.trainer import small
from vade_jax.models.qwen25vl import config, model
from vade_jax.trainer import mesh


@pytest.fixture(scope="module", autouse=True)
def small_matmul():
    """The speed of the machine is no matter here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "MATMUL_SIZE", 64)
        yield


@pytest.fixture(scope="module")
def updates(small_matmul):
    return list(update.run(quick=True))


def rows(found):
    return [row for table in found for row in table.rows]


def check(found):
    """Every table has rows, and every row that ran has a time, a ratio and a floor."""
    assert all(table.rows[0].ratio == 1 for table in found)
    for row in rows(found):
        assert row.floor > 0
        assert row.seconds is None or (row.seconds > 0 and row.ratio > 0)
    assert all(row.name in tables.text(table) for table in found for row in table.rows)


def test_selector():
    check(list(selector.run(quick=True)))


def test_sampler():
    found = list(sampler.run(quick=True))
    check(found)
    names = {row.name for row in rows(found)}
    few = ("vade", "mmr1", "sec")
    assert names == {f"{x} {y}" for x in few for y in ("propose", "update")}


@pytest.mark.slow  # as the next one; tests/trainer has the same equality
def test_update(updates):
    check(updates)


@pytest.mark.slow
def test_grouped_and_plain_take_the_same_step(updates):
    facts = {row.name: row.facts for row in updates[0].rows}
    grouped, plain = facts[update.GROUPED], facts[update.PLAIN]
    assert abs(grouped["loss"]) > 1e-2
    assert grouped["loss"] == pytest.approx(plain["loss"], rel=1e-5)
    assert grouped["gradient"] == pytest.approx(plain["gradient"], rel=1e-5)


def test_decode(monkeypatch):
    monkeypatch.setitem(config.PRESETS, "tiny", small.SHAPE)
    found = list(decode.run(quick=True))
    check(found)
    facts = found[0].rows[0].facts
    assert facts["same_tokens"] == 1
    assert facts["tokens_per_second"] > 0


def test_data():
    speed, steps = data.run(quick=True)
    assert len(speed.rows) == 4 and "images/s" in speed.rows[0].note
    assert steps.rows[0].name == "20 steps of 4"
    assert steps.rows[0].facts["early_bytes"] > 2**20


def test_verify():
    """What the suite calls right in other words is right."""
    (table,) = verify.run(quick=True)
    assert [row.name for row in table.rows] == [
        "64 answers, no formulas",
        "4 formulas, a worker",
    ]
    cases = {**verify.ANSWERS, "expr": verify.FORMULAS}
    for kind, (answer, said) in cases.items():
        judge = lambda text, answer=answer, kind=kind: verify.verify.verify(
            rf"\boxed{{{text}}}", answer, kind
        )
        assert [judge(text).correct for text in said] == [True, True, False], kind


def test_flops_by_hand():
    # Width 128, 4 heads and 1 key/value head of 32, MLP 64, 2 layers, 64 rows; one prompt of 3
    # tokens, two answers of 2. A layer: 128 x (128 + 32 + 32 + 128) + 3 x 128 x 64 = 65,536.
    shape = workload.text_model(**update.SMALL).text
    layers = 2 * 2 * 65_536 * (3 + 2 * 2)
    pairs = (1 + 2 + 3) + 2 * (2 * 3 + 1 + 2)
    attention = 2 * (2 * 2 * 128) * pairs
    head = 2 * 128 * 64 * 4
    found = flops.grouped(shape, 1, 2, prompt=3, answer=2)
    assert found == layers + attention + head


def test_json_holds_every_row(tmp_path):
    found = list(verify.run(quick=True))
    path = tmp_path / "bench.json"
    bench.write(str(path), "a machine", {"verify": found})
    content = json.loads(path.read_text())
    assert content["machine"] == "a machine"
    names = [row["name"] for t in content["suites"]["verify"] for row in t["rows"]]
    assert names == [row.name for row in rows(found)]


# ------------------------------------------------------------------------------ plan
def tiny():
    c = tiny_gspo.get_config("smoke")
    c.model.dtype = "bfloat16"
    c.batch.prompts_per_minibatch, c.batch.prompts_per_microbatch = 16, 8
    c.engine.prompts_per_call = 8
    return c


@pytest.mark.slow  # compiles for eight devices
def test_the_parts_of_a_plan_are_what_the_devices_hold():
    """The tiny model over 8 devices: matrices are split, norms and small biases are not."""
    report = plan.run(tiny(), 8, plan_time.Machine())
    params = model.abstract(config.PRESETS["tiny"])
    whole = sum(4 * x.size for x in jax.tree.leaves(params))
    vectors = sum(
        4 * leaf.size
        for path, leaf in jax.tree.leaves_with_path(params)
        if mesh.path_name(path).endswith(("bias", "scale"))
    )
    weights = (whole - vectors) / 8 + vectors
    parts = report.parts
    assert parts["weights, float32"] == weights
    assert parts["optimizer, float32"] == 2 * weights + 8  # two counters
    assert parts["reference policy"] == weights / 2  # bfloat16
    assert parts["gradients: their sum and a micro-batch's"] == 2 * weights
    assert parts[plan.VLLM] == 0
    assert report.total == sum(parts.values()) and min(parts.values()) >= 0
    assert report.fits and "fits:" in report.text and "does not" not in report.text


def test_a_small_device_does_not_fit_and_says_what_to_change(monkeypatch):
    needed = plan_memory.Program(inputs=10**6, outputs=10**6, temporary=10**8)
    programs = {plan_memory.UPDATE: needed}
    monkeypatch.setattr(plan, "compiled", lambda *_: programs)
    machine = plan_time.Machine(memory_gb=0.01, vllm_fraction=0.001)
    report = plan.run(tiny(), 1, machine)
    assert not report.fits and report.text.count("does not fit") == 2
    whole, vllm = report.problems
    assert "prompts_per_microbatch=4" in whole
    assert vllm.startswith("vLLM's 0.0 GB") and "weights" in vllm
    assert report.parts[plan.VLLM] == 0.001 * 0.01 * plan_time.GB


def test_a_plan_of_devices_that_do_not_divide_is_an_error():
    c, machine = tiny(), plan_time.Machine()
    c.mesh.tensor, c.mesh.fsdp = 4, 1
    with pytest.raises(ValueError, match=r"tensor=4 does not divide .* 2 key/value"):
        plan.run(c, 4, machine)
    c.mesh.tensor, c.mesh.fsdp = 1, -1
    with pytest.raises(ValueError, match="128 is not divisible by 3, the mesh's fsdp"):
        plan.run(c, 3, machine)
    c.batch.prompts_per_microbatch = 2
    with pytest.raises(ValueError, match="prompts_per_microbatch=2 is not divisible"):
        plan.run(c, 4, machine)


def test_the_flops_of_a_plan_by_hand():
    """One prompt and one answer, with every part of the step."""
    c = tiny()
    c.num_prompts, c.num_rollouts = 1, 1
    c.loss.old_logp, c.loss.kl_coef = "trainer", 0.0
    shape, lengths = config.PRESETS["tiny"], plan_shapes.Lengths(20, 5, (4, 4))
    text = shape.text
    work = plan_time.step_flops(c, shape, lengths)
    tower = flops.vision(shape.vision, text.width, 64)
    forward = tower + flops.grouped(text, 1, 1, prompt=20, answer=5)
    assert work["old log-probs"] == forward and work["reference log-probs"] == 0
    assert work["update"] == 3 * forward
    assert work["prefill"] + work["decode"] == forward + flops.head(text, 1)


def test_full_blocks_see_the_whole_image():
    # Width 8, one of two blocks full, no MLP to speak of: an image of 128 patches.
    shape = config.VisionConfig(
        depth=2, width=8, num_heads=1, mlp_width=1, full_blocks=(1,)
    )
    near, far = (flops.vision(shape, 4, 128, image_patches=n) for n in (64, 128))
    assert far - near == 128 * 2 * 2 * 8 * (128 - 64)


def test_the_largest_image():
    assert plan_shapes.image_cells(1003520) == (32, 40)
    assert plan_shapes.image_cells(112 * 112) == (4, 4)
