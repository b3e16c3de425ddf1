"""Measures the built-in engine: answers that share their prompt's cache, against one prefill for each answer.

Both draw the same tokens, because answer n draws from fold_in(key, n) either way. No answer ends early, so
token counts are exact.
"""

import functools
from collections.abc import Iterator

import jax
import numpy as np

from experiments.bench import hugging_face, timing, update, workload
from vade_jax.models.qwen import config, flops, presets
from vade_jax.rollout import engine, local
from vade_jax.types import Rollouts

SHARED, COPIED = "shared prompt cache", "a prompt for every answer"
PEER = "transformers' generate"


def run(quick: bool) -> Iterator[timing.Table]:
    """Yields tables for the tiny job's prompts, for longer ones with an image, and beside transformers."""
    tiny, text = presets.PRESETS["tiny"], workload.text_model(**update.YARDSTICK)
    if quick:
        sizes = workload.Sizes(num_prompts=2, group_size=2, prompt=32, answer=4)
        yield compare(tiny, sizes, with_image=True, rounds=2)
        yield compare(text, sizes, with_image=False, rounds=2)
        return
    sizes = workload.Sizes(num_prompts=32, group_size=8, prompt=64, answer=64)
    yield compare(tiny, sizes, with_image=True, rounds=6)
    sizes = workload.Sizes(num_prompts=8, group_size=8, prompt=512, answer=64)
    yield compare(tiny, sizes, with_image=True, rounds=4)
    for prompt in (512, 128):
        sizes = workload.Sizes(num_prompts=4, group_size=8, prompt=prompt, answer=64)
        yield compare(text, sizes, with_image=False, rounds=6)


def compare(
    shape: config.Config, sizes: workload.Sizes, *, with_image: bool, rounds: int
) -> timing.Table:
    """Returns times of whole calls of `generate`, and of calls for one token, nearly all of it prefill.

    Without images, transformers is beside them.
    """
    policy = workload.policy(shape)
    prompts = (workload.image_prompts if with_image else workload.text_prompts)(shape, sizes)
    calls = {name: make_generate(shape, policy, prompts, sizes, name) for name in (SHARED, COPIED)}
    first = {name: f"{name}, prefill only" for name in calls}
    cases = dict(calls)
    cases |= {first[name]: functools.partial(calls[name], max_tokens=1) for name in calls}
    if not with_image and hugging_face.IS_INSTALLED:
        theirs = hugging_face.generate_text(shape, policy[0], prompts, sizes.group_size)
        cases[PEER] = lambda: theirs(sizes.answer)
    num_bytes = step_bytes(shape.text, sizes, 1, sizes.answer)
    times, machine = timing.interleaved(cases, rounds=rounds, num_bytes=num_bytes)

    num_tokens = sizes.num_answers * sizes.answer
    floors, notes, facts = {}, {}, {}
    for name, copies in ((SHARED, 1), (COPIED, sizes.group_size)):
        floors[first[name]] = prefill_floor(shape, sizes, copies, machine, with_image)
        floors[name] = floors[first[name]] + decode_floor(shape, sizes, copies, machine)
        speed = num_tokens / times[name]
        decoding = max(times[name] - times[first[name]], 1e-9)
        later = (num_tokens - sizes.num_answers) / decoding
        notes[name] = f"{speed:,.0f} tokens/s, {later:,.0f} after the prefill"
        a_step = decoding / max(sizes.answer - 1, 1)
        notes[name] += f", {a_step * 1e3:.1f} ms a step"
        facts[name] = {"tokens_per_second": speed, "seconds_a_step": a_step}
    # A few tokens may differ, where a rounding error changes the outcome of a draw.
    ours, theirs = (generate().token_NT for generate in calls.values())
    facts[SHARED]["same_tokens"] = float(np.mean(ours == theirs))
    if PEER in times:
        floors[PEER] = floors[COPIED]
        notes[PEER] = f"{num_tokens / times[PEER]:,.0f} tokens/s"
    what = f"{workload.num_params(policy[0]) / 1e6:.1f} M decoder, "
    what += "one image each" if with_image else "text"
    return timing.table(
        f"decode, {what}, {sizes}, float32",
        times,
        floors,
        f"prefill FLOPs at {machine.flops / 1e9:.0f} GFLOP/s; each step the slower of its "
        f"FLOPs and of its weights, keys and values at {machine.bandwidth / 1e9:.1f} GB/s",
        notes=notes,
        facts=facts,
    )


def make_generate(shape: config.Config, policy, prompts, sizes: workload.Sizes, how: str):
    """Returns `generate(max_tokens)` for all answers in one call of an engine."""
    (params, merge), group_size = policy, sizes.group_size
    if how == COPIED:
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


def prefill_floor(
    shape: config.Config,
    sizes: workload.Sizes,
    copies: int,
    machine: timing.Speed,
    with_image: bool,
) -> float:
    """Returns the least seconds of `copies` prefills of every prompt, with its image of 64 patches if any."""
    rows = sizes.num_prompts * copies
    work = flops.vision(shape.vision, shape.text.width, 64 * rows) if with_image else 0
    work += flops.layers(shape.text, rows * sizes.prompt)
    pairs = rows * flops.triangle(sizes.prompt)
    return (work + flops.attention(shape.text, pairs)) / machine.flops


def decode_floor(
    shape: config.Config, sizes: workload.Sizes, copies: int, machine: timing.Speed
) -> float:
    """Returns the least seconds of all decoding steps, which read `copies` caches of every prompt."""
    text, answers, total = shape.text, sizes.num_answers, 0.0
    for own in range(1, sizes.answer + 1):
        work = flops.layers(text, answers) + flops.head(text, answers)
        work += flops.attention(text, answers * (sizes.prompt + own))
        num_bytes = step_bytes(text, sizes, copies, own)
        total += max(work / machine.flops, num_bytes / machine.bandwidth)
    return total


def step_bytes(shape: config.TextConfig, sizes: workload.Sizes, copies: int, own: int) -> int:
    """Returns the bytes that a step reads: all weights, the prompts' caches and `own` tokens an answer."""
    # A weight is 4 bytes and takes 2 FLOPs a token.
    weights = 2 * (flops.layers(shape, 1) + flops.head(shape, 1))
    # Tokens in caches; each has a key and a value of 4 bytes in every layer and head.
    keys = sizes.num_prompts * copies * sizes.prompt + sizes.num_answers * own
    return weights + keys * 8 * shape.num_layers * shape.num_kv_heads * shape.head_width
