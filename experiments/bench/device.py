"""Runs the programs of a plan on this machine's devices, with random weights.

`--suite=plan` only compiles them; this suite measures their time, their memory, and how well they use the
devices. The shapes are the plan's: the longest prompts and answers that the settings allow. Each program
runs in a separate process, so that its peak of memory is measured alone.
"""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import flax
import jax
import jax.numpy as jnp
import numpy as np

from experiments.bench import full_size, operations, plan_programs, profile, targets, timing
from experiments.bench.plan_programs import DECODE, SCORE, UPDATE
from vade_jax import atomic, samplers, settings, tables
from vade_jax.data import batching
from vade_jax.models.qwen import lora
from vade_jax.rollout import local
from vade_jax.run import build, cluster
from vade_jax.trainer.policy import Policy
from vade_jax.trainer import hardware, mesh
from vade_jax.types import Feedback, Rollouts

SELECTOR = "selector"
# The names for --programs.
SHORT = {"update": UPDATE, "log-probs": SCORE, "decode": DECODE, SELECTOR: SELECTOR}
SELECTOR_SIZES = (10**4, 10**6, 10**8)
GB = 1e9


# ------------------------------------------------------------------------------ all programs
def run(values: dict, wanted: Sequence[str], rounds: int, path: str | None) -> None:
    """Measures programs one after another, prints the results and writes them to `path`.

    Args:
        values: the settings, as a dict that can be sent to another process.
        wanted: keys of SHORT; empty: all programs that the run has, and the selector.
        rounds: how often each program is timed, after one run that is not timed.
        path: of a JSON file, written after each program; None: no file.

    Raises:
        ValueError: the run has no such program.
    """
    settled = settings.Run.from_dict(values)
    if build.answers_per_row(settled) != settled.num_rollouts:
        raise ValueError(
            f"batch.answers_per_row={settled.batch.answers_per_row}: this bench runs groups that fill "
            "a row; leave it at 0"
        )
    there = [*plan_programs.names(settled), SELECTOR]
    names = [SHORT.get(short, short) for short in wanted] or there
    for name in names:
        if name not in there:
            raise ValueError(
                f"--programs: this run has no {name!r}; it has {', '.join(there)} (log-probs with "
                "loss.kl_coef or loss.old_logp='trainer', decoding with the built-in engine)"
            )
    rows, found = [], {}
    for name in names:
        measure = measure_selector if name == SELECTOR else measure_program
        for one in full_size.alone(measure, values, name, rounds):
            found[one["name"]] = one
            rows.append(_row(one))
            if path:
                atomic.write_text(path, json.dumps(found, indent=2) + "\n")
    header = [
        "",
        "s",
        "tokens/s",
        "MFU",
        "peak GB",
        "plan GB",
        "launched",
        "copied GB",
        "s to compile",
    ]
    print(tables.for_terminal(_title(found), header, rows, _note(found)))
    for one in found.values():
        print(_costliest(one))


def _row(one: dict) -> list[str]:
    show = lambda value, form: "-" if value is None else format(value, form)
    return [
        one["name"],
        show(one["seconds"], ".4g"),
        show(one.get("tokens_per_second"), ",.0f"),
        show(one.get("mfu"), ".1%"),
        show(one["peak_bytes"] and one["peak_bytes"] / GB, ".1f"),
        show(one["plan_bytes"] / GB, ".1f"),
        show(one.get("launched"), ",d"),
        show(None if "launched" not in one else one["copied_bytes"] / GB, ".3f"),
        show(one["compile_seconds"], ".0f"),
    ]


def _costliest(one: dict) -> str:
    """Returns a line with the five operations that took most time; those of equal kind are added up."""
    ops = one["profile"]["costliest"][:5] if "profile" in one else []
    parts = [f"{name} {seconds * 1e3:.0f} ms ({times} times)" for name, seconds, times in ops]
    return f"{one['name']}, costliest: " + ", ".join(parts or ["-"])


def _title(found: dict) -> str:
    one = next(iter(found.values()))
    return f"{one['num_devices']} x {one['device']}, jax {one['jax']}"


def _note(found: dict) -> str:
    peaks = {one["peak_from"] for one in found.values() if "peak_from" in one}
    return (
        f"MFU: useful FLOPs, nothing recomputed or padded, as a share of {' and '.join(peaks) or '-'}\n"
        "peak GB: what the device counted; plan GB: what the compiler counts\n"
        "launched: kernels or thunks; copied: in copies of 1 MB and more; of decoding, both in one step"
    )


# ------------------------------------------------------------------------------ one program
def measure_program(values: dict, name: str, rounds: int) -> list[dict]:
    """Compiles and runs one program of a run; returns its measurements."""
    run = settings.Run.from_dict(values)
    cluster.take_gpus(run.layout)
    policy, lengths = full_size.policy(run), plan_programs.largest(run)
    lowered = plan_programs.lowered(run, policy, lengths, name)
    start = time.perf_counter()
    compiled = lowered.compile()
    compile_seconds = time.perf_counter() - start
    count = operations.of_longest_loop if name == DECODE else operations.of
    counted = count(compiled.as_text())
    size = run.engine.prompts_per_call if name == DECODE else run.batch.prompts_per_minibatch
    prompts = full_size.full_prompts(policy.shape, lengths, size)
    rollouts = full_size.full_rollouts(policy.shape, size, run.num_rollouts, lengths.answer)
    utilisation = build.make_utilisation(run, policy)
    forwards = build.forwards_of_an_update(run) if name == UPDATE else (1, 1)
    utilisation = dataclasses.replace(
        utilisation, forwards=forwards[0], vision_forwards=forwards[1]
    )
    call = CALLS[name](run, policy, compiled, prompts, rollouts)
    seconds, result = _shortest(call, rounds)
    done = result if name == DECODE else rollouts
    peak, peak_from = _peak(utilisation, policy)
    num_tokens = int(done.length_N.sum())
    if name != DECODE:
        num_tokens += sum(prompt.length for prompt in prompts)
    return [
        _facts(name, compiled, policy.mesh, seconds, compile_seconds)
        | {
            "flops": (work := utilisation.work(prompts, done)),
            "mfu": work / (seconds * peak),
            "peak_flops": peak,
            "peak_from": peak_from,
            "tokens": num_tokens,
            "tokens_per_second": num_tokens / seconds,
            "lengths": lengths._asdict(),
            "prompts": size,
            "num_rollouts": run.num_rollouts,
            "metrics": {} if name == DECODE else result,
            "profile": profile.of(call),
            "launched": counted.count,
            "copied_bytes": counted.moved,
        }
    ]


def _update(run, policy: Policy, compiled, prompts, rollouts) -> Callable[[], dict]:
    """Returns a function that takes the next optimizer step at each call."""
    transform, shardings = build.make_optimizer(run, policy)
    state, _ = build.make_state(policy, transform, shardings)
    batch = full_size.full_batch(run, policy, prompts, rollouts)
    base = policy.base

    def call():
        nonlocal state
        state, metrics = compiled(base, state, batch)
        return _finite(metrics)

    return call


def _score(run, policy: Policy, compiled, prompts, rollouts) -> Callable[[], dict]:
    batch = full_size.full_batch(run, policy, prompts, rollouts)
    mean = lambda logp_ANT: float(jnp.mean(logp_ANT))
    return lambda: _finite({"mean log-prob": mean(compiled(policy.base, policy.params, batch))})


def _decode(run, policy: Policy, compiled, prompts, rollouts) -> Callable[[], Rollouts]:
    params = lora.together(policy.base, policy.params)
    weights = local.Apart(policy.merge)(params)
    number_N = np.arange(len(rollouts.length_N), dtype=np.int32)
    sizes = batching.shapes(prompts, multiple=run.data.length_multiple)
    inputs = (batching.collate(prompts, **sizes), None, number_N)
    inputs = jax.device_put(inputs, local.rows_sharding(policy.mesh))

    def call():
        token_NT, logp_NT, length_N, finished_N = jax.device_get(
            compiled(params, weights, *inputs, jax.random.key(0))
        )
        return rollouts.replace(
            token_NT=token_NT, logp_NT=logp_NT, length_N=length_N, finished_N=finished_N
        )

    return call


CALLS = {UPDATE: _update, SCORE: _score, DECODE: _decode}


def _shortest(call: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """Returns the shortest of `rounds` runs in seconds, after an untimed run, and the last result."""
    call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        result = jax.block_until_ready(call())
        times.append(time.perf_counter() - start)
    return min(times), result


def _finite(metrics: dict) -> dict[str, float]:
    """Returns the metrics on the host; fetching them waits for the program.

    Raises:
        FloatingPointError: a metric is not finite.
    """
    found = {name: float(value) for name, value in jax.device_get(metrics).items()}
    if bad := [name for name, value in found.items() if not np.isfinite(value)]:
        raise FloatingPointError(f"not finite: {', '.join(bad)}")
    return found


def _peak(utilisation: hardware.Utilisation, policy: Policy) -> tuple[float, str]:
    """Returns the peak FLOP/s of all devices together, and the source of the number."""
    if utilisation.peak:
        return utilisation.peak, "the published peak"
    _, speed = timing.interleaved({}, rounds=3, num_bytes=2**20)
    return speed.flops * policy.mesh.size, "a float32 matmul's speed in this run"


def _facts(name: str, compiled, devices, seconds: float, compile_seconds: float) -> dict:
    """Returns the facts that are reported for every program."""
    platform = targets.platform_of(devices)
    stats = devices.devices.flat[0].memory_stats() or {}  # a CPU has no statistics
    return {
        "name": name,
        "seconds": seconds,
        "compile_seconds": compile_seconds,
        "plan_bytes": sum(plan_programs.parts(compiled.memory_analysis(), platform)),
        "peak_bytes": stats.get("peak_bytes_in_use"),
        "device": devices.devices.flat[0].device_kind,
        "num_devices": devices.size,
        "jax": jax.__version__,
        "flax": flax.__version__,
    }


# ------------------------------------------------------------------------------ the selector
def measure_selector(values: dict, name: str, rounds: int) -> list[dict]:
    """Returns measurements of VADE's whole step (draw, choose, count, decay) for growing numbers of items."""
    run = settings.Run.from_dict(values)
    sizes = SELECTOR_SIZES if jax.default_backend() != "cpu" else SELECTOR_SIZES[:2]
    return [_selector_step(n, min(run.num_prompts, n // 4), rounds) for n in sizes]


def _selector_step(num_items: int, num_prompts: int, rounds: int) -> dict:
    vade, G = samplers.SAMPLERS["vade"](num_rollouts=8, warmup="none"), 8

    def step(state, key):
        proposal = vade.propose(state, key, num_prompts)
        right_N = jnp.arange(num_prompts * G) % 3 == 0
        feedback = Feedback(
            index_M=proposal.index_M,
            successes_M=jnp.sum(right_N.reshape(num_prompts, G), 1).astype(jnp.float32),
            trials_M=jnp.full(num_prompts, float(G)),
            group_N=jnp.repeat(jnp.arange(num_prompts), G),
            reward_N=right_N.astype(jnp.float32),
            correct_N=right_N,
            advantage_N=right_N.astype(jnp.float32),
            length_N=jnp.ones(num_prompts * G, jnp.int32),
            valid_N=jnp.ones(num_prompts * G, bool),
        )
        return vade.update(state, feedback)

    device = mesh.make(devices=jax.devices()[:1])
    start = time.perf_counter()
    state = jax.jit(functools.partial(vade.init, num_items))()
    compiled = jax.jit(step, donate_argnums=0).lower(state, jax.random.key(0)).compile()
    compile_seconds = time.perf_counter() - start
    draws = iter(range(rounds + 1))

    def call():
        nonlocal state
        state = compiled(state, jax.random.fold_in(jax.random.key(0), next(draws)))
        return state

    seconds, _ = _shortest(call, rounds)
    return _facts(f"vade, {num_items:,} items", compiled, device, seconds, compile_seconds)
