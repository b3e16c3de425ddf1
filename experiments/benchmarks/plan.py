"""What a run needs of every device, from its config alone: nothing is allocated.

The update, the log-probs and the prefill are compiled ahead of time, on as many fake CPU devices as the
run will have, for the largest batch that the config allows: prompts of `data.max_prompt_length` with
one image of `data.max_pixels` each, answers of `sampling.max_tokens`. Assumptions:

- Temporaries are XLA's for a CPU. It computes bfloat16 matmuls in float32, so it holds more than a GPU
  or TPU would; on GPUs the prompts' attention is cuDNN's, which holds no scores at all.
- A replica of vLLM keeps bfloat16 weights and a cache of whole groups in its share of the memory, and
  a decoding step reads both once. It runs beside the update and sleeps never.
- Times are useful FLOPs (`flops.py`: nothing recomputed, nothing padded) at `mfu` of the peak;
  decoding takes the longer of that and of its reads at the memory's bandwidth. Rewards, weight sync
  and validation are not in it.
"""

import math
from typing import NamedTuple

from ml_collections import ConfigDict

from experiments.benchmarks import tables
from experiments.benchmarks.plan_memory import compiled, memory
from experiments.benchmarks.plan_shapes import (
    Lengths,
    abstract_policy,
    largest,
    num_microbatches,
    typical,
)
from experiments.benchmarks.plan_time import (
    GB,
    Machine,
    replica,
    serve_fraction,
    step_flops,
    step_seconds,
)
from vade_jax import arrays, settings
from vade_jax.trainer import mesh

VLLM = "vLLM's share"


class Report(NamedTuple):
    """What a run needs, and whether that is there."""

    parts: dict[str, float]  # bytes on one device
    capacity: float  # bytes of it
    problems: list[str]
    text: str

    @property
    def total(self) -> float:
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        return not self.problems


def run(c: ConfigDict, num_devices: int, machine: Machine) -> Report:
    """Compiles the programs of `c` and returns what they need.

    Raises:
        ValueError: the config is wrong, or the devices do not divide the model or a batch.
    """
    policy = abstract_policy(c, num_devices)
    size = c.batch.prompts_per_microbatch
    mesh.check_batch(policy.mesh, "batch.prompts_per_microbatch", size)
    settings.Run.from_dict(c.to_dict())
    programs = compiled(c, policy, largest(c))
    capacity = machine.memory_gb * GB
    parts = memory(c, policy, programs)
    parts[VLLM] = serve_fraction(c, machine) * capacity
    report = Report(parts, capacity, [], "")
    report.problems.extend(problems(c, policy, report, machine))
    text = [
        memory_table(c, policy, programs, report, machine),
        time_table(c, policy, machine),
        verdict(report),
    ]
    return report._replace(text="\n".join(text))


def memory_table(c, policy, programs, report, machine) -> str:
    """Returns the bytes of one device, part by part."""
    gigabytes = lambda x: f"{x / GB:.1f}"
    rows = [(name, gigabytes(x)) for name, x in report.parts.items()]
    rows.append(("total", gigabytes(report.total)))
    rows.append(("device", gigabytes(report.capacity)))
    lengths = largest(c)
    axes = ", ".join(f"{name} {size}" for name, size in policy.mesh.shape.items())
    temporaries = ", ".join(
        f"{name} {gigabytes(program.temporary)}" for name, program in programs.items()
    )
    note = (
        f"temporaries, as XLA would lay them out on a CPU (upper bounds): {temporaries} GB; "
        f"vLLM has {serve_fraction(c, machine):.0%} of a device"
    )
    title = (
        f"memory of each of {policy.mesh.size} devices ({axes}), GB; {num_microbatches(c)} x "
        f"{c.batch.prompts_per_microbatch} prompts of {lengths.prompt} tokens with an image of "
        f"{lengths.patches // 4}, each with {c.num_rollouts} answers of {lengths.answer}"
    )
    return tables.plain(title, ("", "GB"), rows, note)


def time_table(c, policy, machine) -> str:
    """Returns the expected step, for the largest and for typical lengths."""
    usual = typical(c)
    columns = []
    for lengths in (largest(c), usual):
        work = step_flops(c, policy.shape, lengths)
        seconds = step_seconds(c, policy, lengths, machine)
        work, seconds = ({**x, "step": sum(x.values())} for x in (work, seconds))
        columns += [{n: x / 1e15 for n, x in work.items()}, seconds]
    rows = [(name, *[f"{x[name]:,.0f}" for x in columns]) for name in columns[0]]
    header = ("", "largest PFLOP", "s", "typical PFLOP", "s")
    note = (
        f"useful FLOPs at {machine.mfu:.0%} of {machine.peak_tflops:.0f} TFLOP/s a device, "
        f"decoding at least its reads at {machine.bandwidth_tb} TB/s; typical: prompts of "
        f"{usual.prompt} and answers of {usual.answer} tokens; "
        f"{padding(c, policy, usual):.0%} of its update is padding in a micro-batch "
        f"with an answer of {c.sampling.max_tokens}"
    )
    title = f"a step of {c.num_prompts} prompts x {c.num_rollouts} answers"
    return tables.plain(title, header, rows, note)


def padding(c, policy, lengths: Lengths) -> float:
    """Returns the share of the update's FLOPs that answers of `lengths` waste in full rows."""
    padded = Lengths(
        arrays.bucket(lengths.prompt, c.data.length_multiple),
        c.sampling.max_tokens,
        lengths.cells,
    )
    count = lambda lengths: step_flops(c, policy.shape, lengths)["update"]
    return 1 - count(lengths) / count(padded)


def problems(c, policy, report: Report, machine: Machine) -> list[str]:
    """Returns what does not fit, each with what to change."""
    found = []
    if report.total > report.capacity:
        smaller = c.batch.prompts_per_microbatch // 2
        fix = (
            f"batch.prompts_per_microbatch={smaller}"
            if smaller and smaller % mesh.batch_size(policy.mesh) == 0
            else "more devices, a smaller layout.serve_memory or shorter answers"
        )
        found.append(
            f"{report.total / GB:.1f} GB on devices of {report.capacity / GB:.1f} GB: "
            f"try {fix}"
        )
    jax_share = c.layout.train_memory * report.capacity
    train = report.total - report.parts[VLLM]
    if c.layout.train_memory and train > jax_share:
        found.append(
            f"{train / GB:.1f} GB of training in the {jax_share / GB:.1f} GB of "
            f"layout.train_memory={c.layout.train_memory}: raise it to "
            f"{math.ceil(100 * train / report.capacity) / 100} or more"
        )
    serve = replica(c, policy, largest(c), machine)
    if serve.share and serve.room < serve.group:
        found.append(
            f"vLLM's {serve.share / GB:.1f} GB on {serve.num_devices} devices do not hold the "
            f"weights ({serve.weights / GB:.1f} GB) and one group ({serve.group / GB:.1f} GB): "
            "raise layout.serve_memory or engine.tensor_parallel"
        )
    return found


def verdict(report: Report) -> str:
    """Returns that it fits, or why not."""
    if report.fits:
        return f"fits: {report.total / GB:.1f} of {report.capacity / GB:.1f} GB"
    return "\n".join(f"does not fit: {problem}" for problem in report.problems)
