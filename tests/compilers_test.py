"""The programs of a run, compiled by the real TPU and CUDA compilers for devices that are not here.

`make test-compilers` installs them; what is not installed is skipped. Programs are those that a run
makes, of the tiny model; `-m ''` adds the 3B, of few layers: they are scanned, so more make the same
program.
"""

import importlib
import importlib.util
import pathlib
import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from configs import tiny_grpo, tiny_gspo
from experiments.bench import plan, programs, targets, workload
from tests import hlo
from vade_jax import samplers, settings
from vade_jax.models.qwen import attention, layers
from vade_jax.trainer import mesh
from vade_jax.types import Feedback

pytestmark = pytest.mark.compilers
MODULES = {"tpu": "libtpu", "cuda": "jax_cuda13_plugin"}


@pytest.fixture(autouse=True)
def real_compiler():
    """What was compiled for described devices cannot be loaded again without them."""
    jax.config.update("jax_enable_compilation_cache", False)
    yield
    jax.config.update("jax_enable_compilation_cache", True)


def devices(name, count):
    """Returns described devices; skips where their compiler is not installed."""
    module = MODULES[targets.TARGETS[name].platform]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed: make test-compilers")
    return targets.devices(name, count)


def compiled(target, count, config_file, only, **axes):
    """Returns the compiled programs of the tiny job's settings."""
    c = config_file.get_config("smoke")
    c.batch.prompts_per_minibatch, c.batch.prompts_per_microbatch = 16, 8
    c.num_prompts = 16
    c.engine.prompts_per_call = 8
    c.mesh.update(axes)
    run = settings.Run.from_dict(c.to_dict())
    policy = workload.abstract_policy(run, devices(target, count))
    options = targets.OPTIONS[targets.TARGETS[target].platform]
    return {
        name: programs.lowered(run, policy, name).compile(compiler_options=options) for name in only
    }


UPDATE, SCORE, DECODE = programs.UPDATE, programs.SCORE, programs.DECODE
LAYOUTS = {
    "one": (1, {}),
    "fsdp4": (4, {"fsdp": 4}),
    "fsdp2-tensor2": (4, {"fsdp": 2, "tensor": 2}),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("config_file", "only"),
    [
        pytest.param(tiny_gspo, (UPDATE, SCORE, DECODE), id="gspo"),
        pytest.param(tiny_grpo, (UPDATE,), id="grpo"),  # nothing else knows the loss
    ],
)
@pytest.mark.parametrize("target", ["v5p", "h200"])
def test_a_run_compiles(target, config_file, only, layout, capfd):
    count, axes = LAYOUTS[layout]
    by_name = compiled(target, count, config_file, only, **axes)
    for name, program in by_name.items():
        assert (
            sum(programs.parts(program.memory_analysis(), targets.TARGETS[target].platform)) > 0
        ), name
    warnings = capfd.readouterr().err  # compilers bypass sys.stderr
    assert "Involuntary full rematerialization" not in warnings
    assert "Can't reduce memory use below" not in warnings
    if count > 1:  # on a TPU a fusion of an all-reduce has this name
        assert "reduce-scatter" in by_name[UPDATE].as_text()


@pytest.mark.parametrize("target", ["v5p", "h200"])
def test_weights_in_float32_are_rounded_before_they_are_used(target):
    """Both compilers drop a cast to bfloat16 where the next one goes back to float32."""
    run = settings.Run.from_dict(tiny_grpo.get_config("smoke").to_dict())
    policy = workload.abstract_policy(run, devices(target, 1))
    lowered = programs.lowered(run, policy, SCORE)
    compiled = lowered.compile(compiler_options=targets.OPTIONS[targets.TARGETS[target].platform])
    assert policy.dtype == jnp.bfloat16
    assert hlo.unrounded(compiled.as_text(), policy.params) == []


@pytest.mark.parametrize("target", ["v5p", "h200"])
def test_scales_and_biases_sum_their_gradients_in_float32_rounded_once(target):
    """Left to themselves, both compilers sum in the compute dtype; a CPU's does not."""
    where = NamedSharding(mesh.make(devices=devices(target, 1)), PartitionSpec())
    put = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=where)
    shapes = put(8, 4096, 128), put(128), put(8, 4096, 128)

    def sums(function):
        back = lambda x_NTD, w_D, dy_NTD: jax.vjp(function, x_NTD, w_D)[1](dy_NTD)
        text = jax.jit(back).lower(*shapes).compile().as_text()
        return set(re.findall(r"= (\w+)\[[\d,]*\]\S* reduce\(", text))

    assert sums(layers.times) == sums(layers.plus) == {"f32"}
    assert sums(jnp.multiply) == sums(jnp.add) == {"bf16"}


@pytest.mark.parametrize(("target", "call"), [("v5p", "tpu_custom_call"), ("h200", "__cudnn$fmha")])
def test_prompts_have_the_attention_of_the_hardware(target, call):
    """There and back: a kernel that is not taken falls back to blocks, and nothing else would tell."""
    place = mesh.Place(mesh.make(devices=devices(target, 1)))
    where = NamedSharding(place.mesh, PartitionSpec())
    put = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=where)

    def loss(q_NTHK, k_NTJK, v_NTJK):
        length_N = jnp.array([256, 200])
        return jnp.sum(attention.causal(q_NTHK, k_NTJK, v_NTJK, length_N, place=place) ** 2)

    heads = put(2, 256, 4, 128), put(2, 256, 2, 128), put(2, 256, 2, 128)
    compiled = jax.jit(jax.grad(loss, range(3))).lower(*heads).compile()
    assert compiled.as_text().count(call) >= 2


def test_pictures_have_the_attention_of_a_v5p():
    """Not the windows' own, that of whole pictures; `tensor` need not divide the tower's heads."""
    place = mesh.Place(mesh.make(fsdp=2, tensor=2, devices=devices("v5p", 4)))
    rows = NamedSharding(place.mesh, PartitionSpec(mesh.BATCH))
    put = lambda dtype, *shape: jax.ShapeDtypeStruct(shape, dtype, sharding=rows)

    def loss(q_ZSHK, k_ZSHK, v_ZSHK, valid_ZS):
        return jnp.sum(attention.unmasked(q_ZSHK, k_ZSHK, v_ZSHK, valid_ZS, place=place) ** 2)

    def kernels(patches):
        heads = [put(jnp.bfloat16, 4, patches, 3, 80)] * 3
        lowered = jax.jit(jax.grad(loss, range(3))).lower(*heads, put(bool, 4, patches))
        return lowered.compile().as_text().count("tpu_custom_call")

    assert kernels(64) == 0
    assert kernels(256) >= 2


@pytest.mark.parametrize("target", ["v5p", "h200"])
def test_a_selector_of_100_million_items_compiles(target):
    """One step of VADE: draw, choose 512, count and decay."""
    num_items, size = 100_000_000, 512
    device = devices(target, 1)[0]
    vade = samplers.SAMPLERS["vade"](num_rollouts=8)

    def step(state, key, correct_N):
        proposal = vade.propose(state, key, size)
        group_N = jnp.repeat(jnp.arange(size), 8)
        feedback = Feedback(
            index_M=proposal.index_M,
            successes_M=jnp.sum(correct_N.reshape(size, 8), 1),
            trials_M=jnp.full(size, 8.0),
            group_N=group_N,
            reward_N=correct_N,
            correct_N=correct_N,
            advantage_N=correct_N,
            length_N=jnp.ones(size * 8, jnp.int32),
            valid_N=jnp.ones(size * 8, bool),
        )
        return vade.update(state, feedback), proposal.index_M

    state = jax.eval_shape(lambda: vade.init(num_items))
    key = jax.eval_shape(lambda: jax.random.key(0))
    correct_N = jax.ShapeDtypeStruct((size * 8,), jnp.float32)
    where = jax.sharding.SingleDeviceSharding(device)
    step = jax.jit(step, in_shardings=where, out_shardings=where, donate_argnums=0)
    options = targets.OPTIONS[targets.TARGETS[target].platform]
    sizes = step.lower(state, key, correct_N).compile(compiler_options=options).memory_analysis()
    assert sizes.argument_size_in_bytes > 8 * num_items  # alpha and beta
    assert sizes.temp_size_in_bytes < 64 * num_items


def step_of_an_optimizer(device, num_layers):
    """Returns one step with momentum, of so many matrices of 32 MB, compiled with what it donates."""

    def step(weights, momentum, x):
        def loss(weights):
            layer = jax.checkpoint(lambda x, kernel: (jax.nn.relu(x @ kernel), None))
            return jnp.sum(jax.lax.scan(layer, x, weights)[0].astype(jnp.float32) ** 2)

        momentum = (0.9 * momentum + jax.grad(loss)(weights)).astype(jnp.bfloat16)
        return (weights - 0.1 * momentum).astype(jnp.bfloat16), momentum

    where = jax.sharding.SingleDeviceSharding(device)
    put = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=where)
    stack = put(num_layers, 4096, 4096)
    return jax.jit(step, donate_argnums=(0, 1)).lower(stack, stack, put(4096, 4096)).compile()


def test_the_plan_of_a_tpu_counts_what_its_compiler_counts():
    """Accepted below the 15.75 GiB that a v5e has, and refused above, with the same number."""
    device, layer = devices("v5e", 1)[0], 4096 * 4096 * 2

    found = programs.parts(step_of_an_optimizer(device, 115).memory_analysis(), "tpu")
    assert 4 * 115 * layer < sum(found) < 15.75 * 2**30
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"RESOURCE_EXHAUSTED.* \(16.31G\)"):
        step_of_an_optimizer(device, 130)
    assert sum(found) / 115 * 130 == pytest.approx(16.31 * 2**30, rel=0.003)


PAGE = pathlib.Path(__file__).parents[1] / "docs" / "scale_out.md"
COLUMNS = {  # of its first table of memory: target, devices, argument of the config
    "4 x H200": ("h200", 4, None),
    "4 x H100": ("h100", 4, None),
    "4 x H100, `:bf16`": ("h100", 4, "bf16"),
    "1 x H200, `:single`": ("h200", 1, "single"),
    "1 x H100, `:single,bf16`": ("h100", 1, "single,bf16"),
    "4 x v5p, `:local`": ("v5p", 4, "local"),
}


def cells(column):
    """Returns what the page says of this column, by config."""
    lines = PAGE.read_text().partition("## On one")[0].splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if "|" in line]
    (head,) = [row for row in rows if "4 x H200" in row]
    place = head.index(column)
    return {row[0]: row[place] for row in rows if row and row[0][:2] in ("7B", "3B")}


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS)
def test_the_papers_runs_need_what_the_page_says(column):
    """At their size, of the largest batch that they may meet: some minutes a program."""
    target, count, argument = COLUMNS[column]
    for name, said in cells(column).items():
        if not said:
            continue
        file = importlib.import_module(f"configs.qwen{name.lower().replace(' ', '_')}")
        run = settings.Run.from_dict(file.get_config(argument).to_dict())
        report = plan.make(run, devices(target, count), targets.TARGETS[target])
        assert report.fits == (said != "does not fit"), report.text
        if report.fits:
            assert sum(report.needs.values()) / plan.GB == pytest.approx(float(said), abs=0.3)
