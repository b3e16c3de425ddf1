"""Plans a run from its settings alone: the memory that it needs on each device.

It is the memory of the programs (programs.py), compiled by the target's compiler for the largest batch:
prompts of `data.max_prompt_length` with one image of `data.max_pixels` each, and answers of
`sampling.max_tokens`. A replica of vLLM keeps bfloat16 weights and a cache of complete groups in its share of
the memory, also during the update. GPUs that only answer are of the same kind.

The plan does not include speed, memory of the runtime and its communication library, or fragmentation.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import tqdm

from experiments.bench import programs, targets
from experiments.bench.programs import DECODE, UPDATE, Program
from experiments.bench.workload import abstract_policy, largest, num_microbatches
from vade_jax import settings, tables
from vade_jax.models.qwen import lora
from vade_jax.run import build, gpus
from vade_jax.trainer import mesh
from vade_jax.trainer.policy import Policy

GB = 1e9
VLLM = "vLLM's share"
BEYOND = "log-probs or decoding, beyond the update"


class Report(NamedTuple):
    """What a run needs, and whether the devices have it."""

    needs: dict[str, float]  # bytes on one device
    problems: list[str]
    text: str

    @property
    def fits(self) -> bool:
        return not self.problems


def make(run: settings.Run, devices: Sequence, target: targets.Target) -> Report:
    """Compiles the programs of a run for `devices`, which may be only described; returns what they need.

    Raises:
        ValueError: the devices do not divide the model or a batch, or cannot serve vLLM.
    """
    if target.platform == "tpu" and serve_fraction(run):
        raise ValueError(
            "vLLM shares the devices in this config, and they are TPUs: use its `:local` argument or "
            "engine.url"
        )
    policy = abstract_policy(run, devices)
    size = run.batch.prompts_per_microbatch
    mesh.check_batch(policy.mesh, "batch.prompts_per_microbatch", size)
    compiled, parts, problems = {}, [], []
    with tqdm.tqdm(programs.names(run), unit=" programs") as bar:  # one can take minutes
        for name in bar:
            bar.set_description(f"compiling {name}")
            try:
                program = programs.lowered(run, policy, name)
                compiled[name] = programs.measure(program, target.platform)
            except jax.errors.JaxRuntimeError as error:  # CUDA's compiler says what it would need
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                fix = fewer_prompts(run, policy) if name == DECODE else smaller_batch(run, policy)
                why, fix = str(error).partition(": ")[2], fix or "more devices or shorter answers"
                problems = [f"{name}: {why} Try {fix}"]
                break
    needs = {}
    if not problems:
        needs = memory(run, policy, compiled)
        needs[VLLM] = serve_fraction(run) * target.memory_gb * GB
        problems = find_problems(run, policy, needs, target)
        parts = [program_table(compiled), memory_table(run, policy, needs, target)]
    parts += [f"does not fit: {problem}" for problem in problems]
    if not problems:
        parts.append(f"fits: {sum(needs.values()) / GB:.1f} of {target.memory_gb:.1f} GB")
    return Report(needs, problems, "\n".join(parts))


def find_problems(
    run: settings.Run, policy: Policy, needs: dict[str, float], target: targets.Target
) -> list[str]:
    """Returns the problems, each with the setting to change; none if the run fits."""
    problems, total, capacity = [], sum(needs.values()), target.memory_gb * GB
    if total > capacity:
        fix = smaller_batch(run, policy)
        if run.engine.name == "local" and total - needs.get(BEYOND, 0) <= capacity:
            fix = fewer_prompts(run, policy)
        fix = fix or "more devices, a smaller layout.serve_memory or shorter answers"
        problems.append(f"{total / GB:.1f} GB on devices of {target.memory_gb:.1f} GB: try {fix}")
    share, train = run.layout.train_memory, total - needs[VLLM]
    if share and share * capacity < train < capacity:
        problems.append(
            f"{train / GB:.1f} GB of training in the {share * target.memory_gb:.1f} GB of "
            f"layout.train_memory={share}: raise it to "
            f"{math.ceil(100 * train / capacity) / 100} or more"
        )
    if problem := _lack_of_servers(run, policy, target):
        problems.append(problem)
    return problems


def _lack_of_servers(run: settings.Run, policy: Policy, target: targets.Target) -> str:
    """Returns what does not fit into the memory of a vLLM server; "" if everything does."""
    apart = gpus.num_apart(run.engine, run.layout)
    num_devices = min(run.engine.tensor_parallel, apart or policy.mesh.size)
    fraction = run.layout.serve_memory if apart else serve_fraction(run)
    share = fraction * target.memory_gb * GB * num_devices
    weights = 2 * sum(x.size for x in jax.tree.leaves(policy.base or policy.params))
    text, lengths = policy.shape.text, largest(run)
    num_full, width = text.num_layers // text.interval, text.num_kv_heads * text.head_width
    group = 4 * num_full * width * (lengths.prompt + run.num_rollouts * lengths.answer)
    if linear := text.linear:  # each answer has a memory in float32
        num_values = run.num_rollouts * linear.value_size * linear.key_width
        group += 4 * num_values * (text.num_layers - num_full)
    if not share or run.engine.url or share >= weights + group:
        return ""
    return (
        f"vLLM's {share / GB:.1f} GB on {num_devices} devices do not hold the weights "
        f"({weights / GB:.1f} GB) and one group ({group / GB:.1f} GB): raise layout.serve_memory or "
        "engine.tensor_parallel"
    )


def serve_fraction(run: settings.Run) -> float:
    """Returns the share of memory that vLLM takes on the devices that train."""
    elsewhere = run.engine.name == "local" or run.engine.url
    return run.layout.serve_memory if not elsewhere and gpus.shares(run.layout) else 0.0


def smaller_batch(run: settings.Run, policy: Policy) -> str:
    """Returns the setting for half a micro-batch, or "" if the devices cannot divide it."""
    smaller = run.batch.prompts_per_microbatch // 2
    shared = smaller and smaller % mesh.batch_size(policy.mesh) == 0
    return f"batch.prompts_per_microbatch={smaller}" if shared else ""


def fewer_prompts(run: settings.Run, policy: Policy) -> str:
    """Returns the setting for half as many prompts in a call of the built-in engine, or "" if too few."""
    fewer = run.engine.prompts_per_call // 2
    # Fewer prompts than devices would be padded to one for each device, and save nothing.
    return f"engine.prompts_per_call={fewer}" if fewer >= mesh.batch_size(policy.mesh) else ""


# ------------------------------------------------------------------------------ memory
def memory(run: settings.Run, policy: Policy, compiled: dict[str, Program]) -> dict[str, float]:
    """Returns the bytes of one device by purpose, at the worst moment of a step."""
    state = build.make_programs(run, policy).state
    weights, moments = local_bytes(state.params), local_bytes(state.opt_state)
    base = local_bytes(state.frozen)
    reference = 0
    if run.loss.kl_coef:
        # In the compute dtype; for an adapter, the adapter's initial values in float32.
        reference = weights
        if policy.adapter is None:
            stored = jnp.dtype(run.model.param_dtype).itemsize
            reference = reference * min(policy.dtype.itemsize, stored) // stored
    improve = compiled[UPDATE]
    needs: dict[str, float] = {
        **({"base of the adapter": base} if base else {}),
        "weights": weights,
        "optimizer": moments,
        "reference policy": reference,
        "temporaries of the update, gradients among them": improve.temporary,
        "inputs and outputs of the update": improve.inputs
        + improve.outputs
        - base
        - weights
        - moments,
    }
    # The other programs run at other times, while state and reference stay in memory. Their inputs are the
    # weights and, for decoding, a copy of an untied head.
    unread = local_bytes(lora.together(state.frozen, state.params).get("lm_head", {}))
    others = [
        moments + reference + x.bytes + unread * (name == DECODE)
        for name, x in compiled.items()
        if name != UPDATE
    ]
    if (more := max(others, default=0) - sum(needs.values())) > 0:
        needs[BEYOND] = more
    return needs


def local_bytes(tree) -> int:
    """Returns the bytes that one device holds of arrays."""
    size = lambda x: math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize
    return sum(map(size, jax.tree.leaves(tree)))


# ------------------------------------------------------------------------------ tables
def program_table(compiled: dict[str, Program]) -> str:
    """Returns the memory that each program takes on one device."""
    rows = [
        (
            name,
            *[f"{size / GB:.1f}" for size in (x.inputs, x.outputs, x.temporary)],
            f"{x.seconds:.0f}",
        )
        for name, x in compiled.items()
    ]
    return tables.for_terminal(
        "programs, GB of one device",
        ["", "arguments", "outputs", "temporaries", "s to compile"],
        rows,
        "",
    )


def memory_table(
    run: settings.Run, policy: Policy, needs: dict[str, float], target: targets.Target
) -> str:
    """Returns the memory of one device by purpose."""
    numbers = {**needs, "total": sum(needs.values()), "device": target.memory_gb * GB}
    lengths = largest(run)
    axes = ", ".join(f"{name} {size}" for name, size in policy.mesh.shape.items())
    return tables.for_terminal(
        f"memory of each of {policy.mesh.size} devices ({axes}), GB; {num_microbatches(run)} x "
        f"{run.batch.prompts_per_microbatch} prompts of {lengths.prompt} tokens with an image of "
        f"{math.prod(lengths.cells)}, each with {run.num_rollouts} answers of {lengths.answer}",
        ["", "GB"],
        [(name, f"{x / GB:.1f}") for name, x in numbers.items()],
        f"vLLM has {serve_fraction(run):.0%} of a device",
    )
