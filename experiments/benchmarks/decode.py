"""The built-in engine: answers that share their prompt's cache, against one prefill an answer.

Both draw the same tokens: answer n draws from fold_in(key, n) either way. Nothing ends early, so the
token counts are exact.
"""

import functools
from collections.abc import Iterator

import jax
import numpy as np

from experiments.benchmarks import flops, tables, timing, workload
from vade_jax.models.qwen25vl import config
from vade_jax.rollout import engine, local
from vade_jax.types import Rollouts

SHARED, COPIED = "shared prompt cache", "a prompt for every answer"
FIRST = {SHARED: f"{SHARED}, prefill only", COPIED: f"{COPIED}, prefill only"}


def run(quick: bool) -> Iterator[tables.Table]:
    """Yields the tiny job's prompts and longer ones, each with an image."""
    if quick:
        sizes = workload.Sizes(num_prompts=2, group_size=2, prompt=32, answer=4)
        yield compare(sizes, rounds=2)
        return
    tiny = workload.Sizes(num_prompts=32, group_size=8, prompt=64, answer=64)
    yield compare(tiny, rounds=6)
    long = workload.Sizes(num_prompts=8, group_size=8, prompt=512, answer=64)
    yield compare(long, rounds=4)


def compare(sizes: workload.Sizes, *, rounds: int) -> tables.Table:
    """Returns whole calls of `generate`, and those of one token: nearly all prefill."""
    shape = config.PRESETS["tiny"]
    calls = {SHARED: call(shape, sizes, shared=True)}
    calls[COPIED] = call(shape, sizes, shared=False)
    cases = dict(calls)
    for name, generate in calls.items():
        cases[FIRST[name]] = functools.partial(generate, max_tokens=1)
    num_bytes = step_bytes(shape.text, sizes, 1, sizes.answer)
    times, machine = timing.interleaved(cases, rounds=rounds, num_bytes=num_bytes)
    floors, tokens = {}, sizes.num_answers * sizes.answer
    for name, copies in ((SHARED, 1), (COPIED, sizes.group_size)):
        floors[FIRST[name]] = prefill_floor(shape, sizes, copies, machine)
        steps = decode_floor(shape, sizes, copies, machine)
        floors[name] = floors[FIRST[name]] + steps
    facts = {n: {"tokens_per_second": tokens / times[n]} for n in calls}
    facts[SHARED] |= agreement(*[generate() for generate in calls.values()])
    notes = {n: rates(tokens, times[n], times[FIRST[n]], sizes) for n in calls}
    return tables.Table.of(
        f"decode, tiny preset, {sizes}, one image each, float32",
        times,
        floors,
        floor=(
            f"prefill FLOPs at {machine.flops / 1e9:.0f} GFLOP/s; each step the slower of its "
            f"FLOPs and of its weights, keys and values at {machine.bandwidth / 1e9:.1f} GB/s"
        ),
        notes=notes,
        facts=facts,
    )


def call(shape: config.Config, sizes: workload.Sizes, *, shared: bool):
    """Returns `generate(max_tokens)` for all answers in one call of an engine."""
    params, merge = workload.policy(shape)
    prompts = workload.image_prompts(shape, sizes.num_prompts, sizes.prompt)
    group_size = sizes.group_size
    if not shared:
        prompts = [prompt for prompt in prompts for _ in range(group_size)]
        group_size = 1
    stop = shape.eos_token_id
    built = local.LocalEngine(
        merge,
        params,
        sampling=engine.Sampling(max_tokens=sizes.answer),
        stop_ids=(stop,),
        banned_ids=(stop, shape.image_token_id, shape.video_token_id),
        answers_per_row=group_size,
        prompts_per_call=len(prompts),
    )
    num_M = np.full(len(prompts), group_size)

    def generate(max_tokens: int = sizes.answer) -> Rollouts:
        sampling = engine.Sampling(max_tokens=max_tokens)
        return built.generate(prompts, num_M, jax.random.key(0), 0, sampling)

    return generate


def agreement(ours: Rollouts, theirs: Rollouts) -> dict[str, float]:
    """Returns the share of equal tokens; a draw at a rounding error's edge may differ."""
    return {"same_tokens": float(np.mean(ours.token_NT == theirs.token_NT))}


def rates(tokens: int, whole: float, first: float, sizes: workload.Sizes) -> str:
    """Returns tokens a second, and those without the prefill."""
    later = (tokens - sizes.num_answers) / max(whole - first, 1e-9)
    return f"{tokens / whole:,.0f} tokens/s, {later:,.0f} after the prefill"


def prefill_floor(
    shape: config.Config, sizes: workload.Sizes, copies: int, machine: timing.Machine
) -> float:
    """Returns the seconds of `copies` prefills of every prompt, with its image of 64 patches."""
    rows = sizes.num_prompts * copies
    work = flops.vision(shape.vision, shape.text.width, 64 * rows)
    work += flops.layers(shape.text, rows * sizes.prompt)
    work += flops.attention(shape.text, rows * flops.triangle(sizes.prompt))
    return work / machine.flops


def decode_floor(
    shape: config.Config, sizes: workload.Sizes, copies: int, machine: timing.Machine
) -> float:
    """Returns the seconds of all decoding steps, which read `copies` caches of every prompt."""
    text, answers, total = shape.text, sizes.num_answers, 0.0
    for own in range(1, sizes.answer + 1):
        work = flops.layers(text, answers) + flops.head(text, answers)
        work += flops.attention(text, answers * (sizes.prompt + own))
        num_bytes = step_bytes(text, sizes, copies, own)
        total += max(work / machine.flops, num_bytes / machine.bandwidth)
    return total


def step_bytes(
    shape: config.TextConfig, sizes: workload.Sizes, copies: int, own: int
) -> int:
    """Returns what a step reads: all weights, the prompts' caches and `own` tokens an answer."""
    weights = 2 * (flops.layers(shape, 1) + flops.head(shape, 1))  # 4 bytes for 2 FLOPs
    keys = sizes.num_prompts * copies * sizes.prompt + sizes.num_answers * own
    return weights + keys * 8 * shape.num_layers * shape.num_kv_heads * shape.head_width
