"""Plans a run from its settings alone: the memory it needs on each device, and how long a step should take.

Memory and traffic are those of the programs (programs.py), compiled by the target's own compiler for the
largest batch: prompts of `data.max_prompt_length` with one image of `data.max_pixels` each, and answers of
`sampling.max_tokens`. Assumptions:

- A replica of vLLM keeps bfloat16 weights and a cache of whole groups in its share of the memory, and a
  decoding step reads both once. It keeps its memory during the update and never sleeps. GPUs or servers that
  only answer are as those that train.
- Times are those of useful FLOPs (nothing recomputed, nothing padded) at MFU of the peak. Decoding takes
  this time or that of its reads at the memory's bandwidth, whichever is longer. Rewards, weight sync and
  validation are not included.

The plan does not show the real speed, the memory that the runtime and its communication library keep for
themselves, or fragmentation.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from experiments.bench import programs, targets
from experiments.bench.programs import DECODE, UPDATE, Program
from experiments.bench.workload import Lengths, abstract_policy, largest, num_microbatches, typical
from vade_jax import arrays, settings, tables
from vade_jax.models.qwen import config, flops, lora
from vade_jax.run import build
from vade_jax.run.checks import machine
from vade_jax.trainer import learner, mesh
from vade_jax.trainer.policy import Policy

GB = 1e9
MFU = 0.4  # share of the devices' peak FLOP/s that is reached
VLLM = "vLLM's share"
BEYOND = "log-probs or decoding, beyond the update"
MAKING = ("prefill", "decode")  # parts of a step that the engine does


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
            "engine.urls"
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
                compiled[name] = programs.measure(program, policy.mesh, name)
            except jax.errors.JaxRuntimeError as error:  # CUDA's compiler says what it would need
                if "RESOURCE_EXHAUSTED" not in str(error):
                    raise
                fix = fewer_prompts(run, policy) if name == DECODE else smaller_batch(run, policy)
                said, fix = str(error).partition(": ")[2], fix or "more devices or shorter answers"
                problems = [f"{name}: {said} Try {fix}"]
                break
    needs = {}
    if not problems:
        needs = memory(run, policy, compiled)
        needs[VLLM] = serve_fraction(run) * target.memory_gb * GB
        problems = find_problems(run, policy, needs, target)
        parts = [program_table(run, policy, compiled), memory_table(run, policy, needs, target)]
        if run.layout.offload == "all" and target.platform == "cuda":
            parts.append(
                "note: the description of a GPU has no host memory, so the optimizer's state is compiled, "
                "and counted, where it were without layout.offload=all\n"
            )
    parts.append(time_table(run, policy, target))
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
    serve = replica(run, policy, largest(run), target)
    if serve.share and not run.engine.urls and serve.room < serve.group:
        problems.append(
            f"vLLM's {serve.share / GB:.1f} GB on {serve.num_devices} devices do not hold the "
            f"weights ({serve.weights / GB:.1f} GB) and one group ({serve.group / GB:.1f} GB): "
            "raise layout.serve_memory or engine.tensor_parallel"
        )
    return problems


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
    transform, shardings = build.make_optimizer(run, policy)
    state = learner.abstract_state(policy, transform)
    weights = local_bytes(state.params, shardings.params)
    moments = local_bytes(state.opt_state, shardings.opt_state)
    base = local_bytes(policy.base, policy.base_shardings)
    reference = 0
    if run.loss.kl_coef:
        # In the compute dtype; for an adapter, the adapter's initial values in float32.
        reference = weights
        if policy.adapter is None:
            stored = jnp.dtype(run.model.param_dtype).itemsize
            reference = reference * min(policy.dtype.itemsize, stored) // stored
    # With offload the reference is in the host's memory, except while its log-probs are computed.
    waits = reference if run.layout.offload else 0
    improve = compiled[UPDATE]
    needs = {
        **({"base of the adapter": base} if base else {}),
        "weights": weights,
        "optimizer": moments,
        "reference policy": reference - waits,
        "temporaries of the update, gradients among them": improve.temporary,
        "inputs and outputs of the update": improve.inputs
        + improve.outputs
        - base
        - weights
        - moments,
    }
    # The other programs run at other times, while state and reference stay in memory. Their inputs are the
    # weights, but for an untied head, of which decoding has a copy.
    params = lora.together(policy.base, policy.params)
    places = lora.together(policy.base_shardings, policy.shardings)
    unread = local_bytes(params.get("lm_head", {}), places.get("lm_head", {}))
    others = [
        moments + reference + x.bytes + unread * (name == DECODE)
        for name, x in compiled.items()
        if name != UPDATE
    ]
    if (more := max(others, default=0) - sum(needs.values())) > 0:
        needs[BEYOND] = more
    return needs


def local_bytes(tree, shardings) -> int:
    """Returns the bytes that one device holds of arrays with these shardings, without those on the host."""

    def size(x, sharding):
        if sharding.memory_kind == mesh.HOST:
            return 0
        return int(np.prod(sharding.shard_shape(x.shape))) * x.dtype.itemsize

    return sum(jax.tree.leaves(jax.tree.map(size, tree, shardings)))


# ------------------------------------------------------------------------------ tables
def program_table(run: settings.Run, policy: Policy, compiled: dict[str, Program]) -> str:
    """Returns the memory that each program takes on one device, what it sends, and remarks."""
    rows, notes = [], []
    for name, x in compiled.items():
        least = programs.floor(policy, num_microbatches(run), backward=name == UPDATE)
        of_weights = name != DECODE and least  # an engine's weights are gathered already
        sizes = (x.inputs, x.outputs, x.temporary, sum(x.sent.values()))
        rows.append(
            (
                name,
                *[f"{size / GB:.1f}" for size in sizes],
                f"{least / GB:.1f}" if of_weights else "",
                f"{x.launched:,}",
                f"{x.copied / GB:.1f}",
                f"{x.seconds:.0f}",
            )
        )
        if x.sent:
            kinds = ", ".join(f"{kind} {size / GB:.1f}" for kind, size in x.sent.items())
            notes.append(f"sent by kind, GB: {name}: {kinds}")
    notes += [f"note: {name}: {remark}" for name, x in compiled.items() for remark in x.remarks]
    return tables.for_terminal(
        "programs, GB of one device; the floor is of weights and gradients alone, as they are split; "
        "launched and copied: kernels, and bytes in copies of 1 MB and more, in one step of decoding",
        [
            "",
            "arguments",
            "outputs",
            "temporaries",
            "sent",
            "floor",
            "launched",
            "copied",
            "s to compile",
        ],
        rows,
        "\n".join(notes),
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
        f"{lengths.patches // 4}, each with {run.num_rollouts} answers of {lengths.answer}",
        ["", "GB"],
        [(name, f"{x / GB:.1f}") for name, x in numbers.items()],
        f"vLLM has {serve_fraction(run):.0%} of a device",
    )


def time_table(run: settings.Run, policy: Policy, target: targets.Target) -> str:
    """Returns FLOPs and seconds of a step, for the largest and for typical lengths."""
    usual = typical(run)
    columns = []
    for lengths in (largest(run), usual):
        work = step_flops(run, policy.shape, lengths)
        seconds = step_seconds(run, policy, lengths, target)
        totals = whole_steps(run, seconds)
        work |= dict.fromkeys(totals, sum(work.values()))
        seconds |= totals
        columns += [{n: x / 1e15 for n, x in work.items()}, seconds]
    # A micro-batch with one answer of full length pads all its answers to this length.
    prompt = arrays.bucket(usual.prompt, run.data.length_multiple)
    padded = Lengths(prompt, run.sampling.max_tokens, usual.cells)
    useful, done = (step_flops(run, policy.shape, lengths)["update"] for lengths in (usual, padded))
    return tables.for_terminal(
        f"a step of {run.num_prompts} prompts x {run.num_rollouts} answers",
        ["", "largest PFLOP", "s", "typical PFLOP", "s"],
        [(name, *[f"{x[name]:,.0f}" for x in columns]) for name in columns[0]],
        f"useful FLOPs at {MFU:.0%} of {target.peak_tflops:.0f} TFLOP/s a device, "
        f"decoding at least its reads at {target.bandwidth_tb} TB/s; typical: prompts of "
        f"{usual.prompt} and answers of {usual.answer} tokens; "
        f"{1 - useful / done:.0%} of its update is padding in a micro-batch "
        f"with an answer of {run.sampling.max_tokens}",
    )


# ------------------------------------------------------------------------------ time
def step_flops(run: settings.Run, shape: config.Config, lengths: Lengths) -> dict[str, int]:
    """Returns the useful FLOPs of a step by purpose."""
    M, P, T = run.num_prompts, lengths.prompt, lengths.answer
    N = M * run.num_rollouts
    tower = 0
    if shape.vision:
        n = lengths.patches
        tower = M * flops.vision(shape.vision, shape.text.width, n, image_patches=n)
    forward = tower + flops.grouped(shape.text, M, N, prompt=P, answer=T)
    prefill = tower + flops.grouped(shape.text, M, 0, prompt=P, answer=0)
    return {
        "prefill": prefill + flops.head(shape.text, M),
        "decode": forward - prefill,
        "old log-probs": forward * (run.loss.old_logp == "trainer"),
        "reference log-probs": forward * bool(run.loss.kl_coef),
        "update": flops.BACKWARD * forward,
    }


def step_seconds(
    run: settings.Run, policy: Policy, lengths: Lengths, target: targets.Target
) -> dict[str, float]:
    """Returns the seconds of each part of a step."""
    speed = MFU * target.peak_tflops * 1e12  # of one device
    num_devices = dict.fromkeys(MAKING, num_answering(run, policy))
    seconds = {
        name: work / (speed * num_devices.get(name, policy.mesh.size))
        for name, work in step_flops(run, policy.shape, lengths).items()
    }
    # At every token, decoding reads the weights, and the caches of as many groups as fit at once.
    serve = replica(run, policy, lengths, target)
    num_replicas = num_answering(run, policy) // serve.num_devices
    groups = -(-run.num_prompts // num_replicas)
    local = -(-run.engine.prompts_per_call // num_replicas)
    room = int(serve.room // serve.group) if serve.share else local
    at_once = min(groups, max(1, room))
    tokens = run.num_rollouts * (lengths.prompt + lengths.answer / 2)  # on average, of a group
    step = serve.weights + at_once * serve.token * tokens
    steps = lengths.answer * -(-groups // at_once)
    reads = steps * step / (target.bandwidth_tb * 1e12 * serve.num_devices)
    return seconds | {"decode": max(seconds["decode"], reads)}


def whole_steps(run: settings.Run, parts: dict[str, float]) -> dict[str, float]:
    """Returns the seconds of a step with these parts: in turns and, where it can be, made a step ahead."""
    step, making = sum(parts.values()), sum(parts[name] for name in MAKING)
    totals = {"step": step}
    if machine.overlaps(run.engine, run.layout):
        totals["step, engine.max_lag=1"] = max(making, step - making)
    return totals


class Replica(NamedTuple):
    """One copy of the model that decodes: its bytes, summed over its devices."""

    num_devices: int
    share: float
    weights: int
    token: int  # keys and values of one token
    group: int  # of a prompt and all its answers

    @property
    def room(self) -> float:
        return self.share - self.weights


def replica(run: settings.Run, policy: Policy, lengths: Lengths, target: targets.Target) -> Replica:
    """Returns a vLLM server on `engine.tensor_parallel` devices, or on all if there are fewer."""
    text = policy.shape.text
    num_devices = min(run.engine.tensor_parallel, num_answering(run, policy))
    fraction = serve_fraction(run)
    if machine.num_apart(run.engine, run.layout):
        fraction = run.layout.serve_memory
    # A key and a value of 2 bytes each.
    token = 4 * text.num_layers * text.num_kv_heads * text.head_width
    return Replica(
        num_devices=num_devices,
        share=fraction * target.memory_gb * GB * num_devices,
        weights=2 * sum(x.size for x in jax.tree.leaves(policy.base or policy.params)),
        token=token,
        group=token * (lengths.prompt + run.num_rollouts * lengths.answer),
    )


def num_answering(run: settings.Run, policy: Policy) -> int:
    """Returns how many devices answer: those of vLLM alone, or else those that train."""
    return machine.num_apart(run.engine, run.layout) or policy.mesh.size


def serve_fraction(run: settings.Run) -> float:
    """Returns the share of memory that vLLM takes on the devices that train."""
    elsewhere = run.engine.name == "local" or run.engine.urls
    return run.layout.serve_memory if not elsewhere and machine.shares(run.layout) else 0.0
