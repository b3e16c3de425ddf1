"""How long a step should take: useful work at a share of the peak, decoding at the memory's speed."""

import dataclasses
from typing import NamedTuple

import jax
from ml_collections import ConfigDict

from experiments.benchmarks import flops
from experiments.benchmarks.plan_shapes import Lengths
from vade_jax.models.qwen25vl import config
from vade_jax.run import build

GB = 1e9


@dataclasses.dataclass(frozen=True)
class Machine:
    """What is assumed of a device; the defaults are an H200's published numbers."""

    memory_gb: float = 141.0
    peak_tflops: float = 989.0  # bfloat16, dense
    mfu: float = 0.4  # the share of the peak that is reached
    bandwidth_tb: float = 4.8
    # None: `layout.serve_memory`, if vLLM shares the devices
    vllm_fraction: float | None = None


def step_flops(c: ConfigDict, shape: config.Config, lengths: Lengths) -> dict[str, int]:
    """Returns the useful FLOPs of a step, by what they are for."""
    M, P, T = c.num_prompts, lengths.prompt, lengths.answer
    tower = M * flops.vision(
        shape.vision, shape.text.width, lengths.patches, image_patches=lengths.patches
    )
    N = M * c.num_rollouts
    forward = tower + flops.grouped(shape.text, M, N, prompt=P, answer=T)
    prefill = tower + flops.grouped(shape.text, M, 0, prompt=P, answer=0)
    return {
        "prefill": prefill + flops.head(shape.text, M),
        "decode": forward - prefill,
        "old log-probs": forward * (c.loss.old_logp == "trainer"),
        "reference log-probs": forward * bool(c.loss.kl_coef),
        "update": flops.BACKWARD * forward,
    }


def step_seconds(
    c: ConfigDict, policy: build.Policy, lengths: Lengths, machine: Machine
) -> dict[str, float]:
    """Returns the seconds of each part of a step."""
    speed = machine.mfu * machine.peak_tflops * 1e12 * policy.mesh.size
    work = step_flops(c, policy.shape, lengths)
    seconds = {name: x / speed for name, x in work.items()}
    reads = decode_seconds(c, policy, lengths, machine)
    return seconds | {"decode": max(seconds["decode"], reads)}


def decode_seconds(
    c: ConfigDict, policy: build.Policy, lengths: Lengths, machine: Machine
) -> float:
    """Returns how long reading weights and caches takes, for as many groups as fit at once."""
    G, T = c.num_rollouts, lengths.answer
    serve = replica(c, policy, lengths, machine)
    num_replicas = policy.mesh.size // serve.num_devices
    groups = -(-c.num_prompts // num_replicas)
    local = -(-c.engine.prompts_per_call // num_replicas)
    room = int(serve.room // serve.group) if serve.share else local
    at_once = min(groups, max(1, room))
    step = serve.weights + at_once * G * serve.token * (lengths.prompt + T / 2)
    steps = T * -(-groups // at_once)
    return steps * step / (machine.bandwidth_tb * 1e12 * serve.num_devices)


class Replica(NamedTuple):
    """Bytes of one copy of the model that decodes, over all its devices."""

    num_devices: int
    share: float
    weights: int
    token: int  # keys and values of one token
    group: int  # of a prompt and all its answers

    @property
    def room(self) -> float:
        return self.share - self.weights


def replica(
    c: ConfigDict, policy: build.Policy, lengths: Lengths, machine: Machine
) -> Replica:
    """Returns a vLLM server of `engine.tensor_parallel` devices, at most all of them."""
    text = policy.shape.text
    num_devices = min(c.engine.tensor_parallel, policy.mesh.size)
    token = 4 * text.num_layers * text.num_kv_heads * text.head_width
    return Replica(
        num_devices=num_devices,
        share=serve_fraction(c, machine) * machine.memory_gb * GB * num_devices,
        weights=2 * sum(x.size for x in jax.tree.leaves(policy.params)),
        token=token,
        group=token * (lengths.prompt + c.num_rollouts * lengths.answer),
    )


def serve_fraction(c: ConfigDict, machine: Machine) -> float:
    """Returns the share of the memory that vLLM takes on the devices that train."""
    if machine.vllm_fraction is not None:
        return machine.vllm_fraction
    elsewhere = c.engine.name == "local" or c.engine.urls or c.layout.serve
    return 0.0 if elsewhere else c.layout.serve_memory
