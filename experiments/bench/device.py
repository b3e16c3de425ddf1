"""Runs the programs of a plan on this machine's devices, with random weights.

`--suite=plan` only compiles them; this suite measures their time, their memory, and how well they use the
devices. The shapes are the plan's: the longest prompts and answers that the settings allow. Each program runs
in a separate process, which gives its own peak memory.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.bench import core, programs, timing, workload
from experiments.bench.programs import DECODE, SCORE, UPDATE
from vade_jax import settings, tables
from vade_jax.models.qwen import lora
from vade_jax.rollout import local
from vade_jax.run import build, gpus
from vade_jax.trainer import learner
from vade_jax.trainer.policy import Policy
from vade_jax.types import Prompt, Rollouts

SELECTOR = "selector"
SELECTOR_SIZES = (10**4, 10**6, 10**8)
GB = 1e9
COLUMNS = (  # title, name of the number, its format and unit
    ("s", "seconds", ".4g", 1),
    ("tokens/s", "tokens_per_second", ",.0f", 1),
    ("MFU", "mfu", ".1%", 1),
    ("peak GB", "peak_bytes", ".1f", GB),
    ("plan GB", "plan_bytes", ".1f", GB),
    ("s to compile", "compile_seconds", ".0f", 1),
)


def run(values: dict, wanted: Sequence[str], rounds: int) -> None:
    """Measures the `wanted` programs, by default all and the selector, and prints the results.

    `values` are the settings as a dict, which can be sent to another process. Each program is timed `rounds`
    times, after one run that is not timed.

    Raises:
        ValueError: the run has no such program.
    """
    there = [*programs.names(settings.Run.from_dict(values)), SELECTOR]
    names = wanted or there
    if unknown := [name for name in names if name not in there]:
        raise ValueError(
            f"--programs: this run has no {unknown[0]!r}; it has {', '.join(there)} (log-probs with "
            "loss.kl_coef or loss.old_logp='trainer', decode with the built-in engine)"
        )
    rows = []
    for name in names:
        measure = measure_selector if name == SELECTOR else measure_program
        rows += workload.alone(measure, values, name, rounds)
    print(
        tables.for_terminal(
            "{num_devices} x {device}, jax {jax}".format(**rows[0]),
            ["", *(title for title, *_ in COLUMNS)],
            [[one["name"], *(_cell(one, *column) for column in COLUMNS)] for one in rows],
            "MFU: useful FLOPs, nothing recomputed or padded, as a share of the published peak\n"
            "peak GB: what the device counted; plan GB: what the compiler counts",
        )
    )


def _cell(one: dict, _: str, name: str, form: str, unit: float) -> str:
    return "-" if one.get(name) is None else format(one[name] / unit, form)


# ------------------------------------------------------------------------------ one program
class Ready(NamedTuple):
    """A compiled program with the arrays that it takes."""

    run: settings.Run
    policy: Policy
    compiled: Any
    compile_seconds: float
    prompts: list[Prompt]
    rollouts: Rollouts
    call: Callable[[], Any]  # returns finite metrics, or of decoding the answers


def prepare(values: dict, name: str) -> Ready:
    """Compiles one program of a run, and makes the largest inputs that it takes."""
    run = settings.Run.from_dict(values)
    gpus.take(run.layout)
    policy = workload.random_policy(run)
    lowered = programs.lowered(run, policy, name)
    start = time.perf_counter()
    compiled = lowered.compile()
    seconds = time.perf_counter() - start
    prompts, rollouts = programs.full_inputs(run, policy.shape, name)
    call = CALLS[name](run, policy, compiled, prompts, rollouts)
    return Ready(run, policy, compiled, seconds, prompts, rollouts, call)


def measure_program(values: dict, name: str, rounds: int) -> list[dict]:
    """Compiles and runs one program of a run; returns its measurements."""
    ready = prepare(values, name)
    run, policy, prompts, rollouts = ready.run, ready.policy, ready.prompts, ready.rollouts
    result = ready.call()
    seconds = min(timing.seconds(ready.call) for _ in range(rounds))
    forwards = build.forwards_of_an_update(run) if name == UPDATE else (1, 1)
    utilisation = functools.partial(build.make_utilisation(run, policy), forwards=forwards)
    done = result if name == DECODE else rollouts
    num_tokens = int(done.length_N.sum())
    num_tokens += 0 if name == DECODE else sum(prompt.length for prompt in prompts)
    sizes = ready.compiled.memory_analysis()
    return [
        _facts(name, seconds, policy.mesh.size)
        | {
            "compile_seconds": ready.compile_seconds,
            "plan_bytes": sum(programs.parts(sizes, jax.default_backend())),
            "mfu": utilisation(prompts, done, seconds).get("perf/mfu"),
            "tokens": num_tokens,
            "tokens_per_second": num_tokens / seconds,
            "metrics": {} if name == DECODE else result,
        }
    ]


def _update(run, policy: Policy, compiled, prompts, rollouts) -> Callable[[], dict]:
    """Returns a function that takes the next optimizer step at each call."""
    state = learner.first_state(policy, build.make_programs(run, policy).optimizer)
    batch = workload.full_batch(run, policy, prompts, rollouts)

    def call():
        nonlocal state
        state, metrics = compiled(state, batch)
        return _finite(metrics)

    return call


def _score(run, policy: Policy, compiled, prompts, rollouts) -> Callable[[], dict]:
    batch = workload.full_batch(run, policy, prompts, rollouts)
    score = lambda: jnp.mean(compiled(policy.params, policy.base, batch))
    return lambda: _finite({"mean log-prob": score()})


def _decode(run, policy: Policy, compiled, prompts, rollouts) -> Callable[[], Rollouts]:
    params = lora.together(policy.base, policy.params)
    weights = local.Apart(policy.merge)(params)
    inputs = workload.decode_inputs(run, policy, prompts, len(rollouts.length_N))
    inputs = jax.device_put(inputs, local.rows_sharding(policy.mesh))

    def call():
        key = jax.random.key(0)
        names = ("token_NT", "logp_NT", "length_N", "finished_N")
        answers = jax.device_get(compiled(params, weights, *inputs, key))
        return rollouts.replace(**dict(zip(names, answers, strict=True)))

    return call


CALLS = {UPDATE: _update, SCORE: _score, DECODE: _decode}


def _finite(metrics: dict) -> dict[str, float]:
    """Returns the metrics on the host; fetching them waits for the program.

    Raises:
        FloatingPointError: a metric is not finite.
    """
    values = {name: float(value) for name, value in jax.device_get(metrics).items()}
    if bad := [name for name, value in values.items() if not np.isfinite(value)]:
        raise FloatingPointError(f"not finite: {', '.join(bad)}")
    return values


def measure_selector(values: dict, name: str, rounds: int) -> list[dict]:
    """Returns measurements of VADE's step (draw, choose, count, decay) for growing numbers of items."""
    num_prompts = settings.Run.from_dict(values).num_prompts
    measured = []
    for size in SELECTOR_SIZES if jax.default_backend() != "cpu" else SELECTOR_SIZES[:2]:
        propose, update = core.selector("vade", size, min(num_prompts, size // 4))
        times = timing.interleaved({"step": lambda: (propose(), update())}, rounds=rounds)  # noqa: B023
        measured.append(_facts(f"vade, {size:,} items", min(times["step"]), 1))
    return measured


def _facts(name: str, seconds: float, num_devices: int) -> dict:
    """Returns the facts that are reported for every program."""
    device = jax.devices()[0]
    return {
        "name": name,
        "seconds": seconds,
        "peak_bytes": (device.memory_stats() or {}).get("peak_bytes_in_use"),  # None on a CPU
        "device": device.device_kind,
        "num_devices": num_devices,
        "jax": jax.__version__,
    }
