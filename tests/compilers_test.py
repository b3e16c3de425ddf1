"""The programs of a run, compiled by the real TPU and CUDA compilers for devices that are not here.

`make test-compilers` installs them; what is not installed is skipped. Programs are those that a run
makes, of the tiny model.
"""

import dataclasses
import importlib.util
import re

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from configs import qwen3_5_0_8b, tiny_grpo, tiny_gspo
from experiments.bench import programs, targets, workload
from tests import hlo
from vade_jax import settings
from vade_jax.models.qwen import attention, layers, presets
from vade_jax.trainer import mesh

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


def compiled(target, count, config_file, only, words="smoke", **axes):
    """Returns the compiled programs of the tiny job's settings."""
    c = config_file.get_config(words)
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
        sizes = programs.parts(program.memory_analysis(), targets.TARGETS[target].platform)
        assert sum(sizes) > 0, name
    warnings = capfd.readouterr().err  # compilers bypass sys.stderr
    assert "Involuntary full rematerialization" not in warnings
    assert "Can't reduce memory use below" not in warnings
    if count > 1:  # on a TPU a fusion of an all-reduce has this name
        assert "reduce-scatter" in by_name[UPDATE].as_text()


@pytest.mark.parametrize("target", ["v5p", "h200"])
def test_a_hybrid_compiles(target):
    compiled(target, 4, tiny_gspo, (UPDATE, DECODE), "smoke,qwen3_5", fsdp=4)


def test_decoding_on_an_h200_does_not_copy_the_memory_of_linear_layers(monkeypatch):
    """At a published width, for which the compiler makes other kernels than for a tiny one."""
    shape = presets.PRESETS["qwen3.5-0.8b"]
    text = dataclasses.replace(shape.text, num_layers=4)
    monkeypatch.setitem(presets.PRESETS, "qwen3.5-0.8b", dataclasses.replace(shape, text=text))
    decode = compiled("h200", 1, qwen3_5_0_8b, (DECODE,), "single")[DECODE].as_text()
    memory = "f32[64,16,128,128]"  # answers, heads, key, value
    assert memory in decode and not re.search(rf"{re.escape(memory)}\S* copy\(", decode)


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


@pytest.mark.parametrize("width", [128, 256])
@pytest.mark.parametrize(("target", "call"), [("v5p", "tpu_custom_call"), ("h200", "__cudnn$fmha")])
def test_prompts_have_the_attention_of_the_hardware(target, call, width):
    """There and back: a kernel that is not taken falls back to blocks, and nothing else would tell.

    A head of 256, as Qwen3.5 has, is too wide for cuDNN.
    """
    place = mesh.Place(mesh.make(devices=devices(target, 1)))
    where = NamedSharding(place.mesh, PartitionSpec())
    put = lambda *shape: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=where)

    def loss(q_NTHK, k_NTJK, v_NTJK):
        length_N = jnp.array([256, 200])
        return jnp.sum(attention.causal(q_NTHK, k_NTJK, v_NTJK, length_N, place=place) ** 2)

    heads = put(2, 256, 4, width), put(2, 256, 2, width), put(2, 256, 2, width)
    compiled = jax.jit(jax.grad(loss, range(3))).lower(*heads).compile()
    assert (compiled.as_text().count(call) >= 2) == (target == "v5p" or width == 128)


def test_pictures_have_the_attention_of_a_v5p():
    """Not the windows' own, that of whole pictures; `tensor` need not divide the tower's heads."""
    place = mesh.Place(mesh.make(fsdp=2, tensor=2, devices=devices("v5p", 4)))
    rows = NamedSharding(place.mesh, PartitionSpec(mesh.BATCH))
    put = lambda dtype, *shape: jax.ShapeDtypeStruct(shape, dtype, sharding=rows)

    def loss(q_ZSHK, k_ZSHK, v_ZSHK, valid_ZS):
        return jnp.sum(attention.unmasked(q_ZSHK, k_ZSHK, v_ZSHK, valid_ZS, place=place)[0] ** 2)

    def kernels(patches):
        heads = [put(jnp.bfloat16, 4, patches, 3, 80)] * 3
        lowered = jax.jit(jax.grad(loss, range(3))).lower(*heads, put(bool, 4, patches))
        return lowered.compile().as_text().count("tpu_custom_call")

    assert kernels(64) == 0
    assert kernels(256) >= 2
