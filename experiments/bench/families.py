"""Times one update of Qwen2.5-VL and of Qwen3-VL at a tiny size, on pictures with equally many pixels."""

from collections.abc import Iterator

import jax
import numpy as np

from experiments.bench import full_size, plan_programs, timing, update, workload
from vade_jax.data import images
from vade_jax.models.qwen import flops, presets
from vade_jax.trainer import minibatches

FAMILIES = {"Qwen2.5-VL": "tiny", "Qwen3-VL": "tiny_qwen3vl"}
TEXT = 60  # tokens of a prompt besides its picture


def run(quick: bool) -> Iterator[timing.Table]:
    """Yields one table: a picture of 448 x 448 pixels is 256 tokens for Qwen2.5-VL and 196 for Qwen3-VL."""
    if quick:
        yield compare(side=224, num_prompts=2, group_size=2, answer=8, rounds=2)
    else:
        yield compare(side=448, num_prompts=4, group_size=8, answer=64, rounds=8)


def compare(
    *, side: int, num_prompts: int, group_size: int, answer: int, rounds: int
) -> timing.Table:
    """Returns the times of updates whose prompts have one picture of `side` x `side` pixels."""
    steps, work, notes, num_bytes = {}, {}, {}, 0
    for family, preset in FAMILIES.items():
        shape = presets.PRESETS[preset]
        assert shape.vision is not None
        cells = side // images.cell_side(shape.vision.patch_size)
        lengths = plan_programs.Lengths(TEXT + cells * cells, answer, (cells, cells))
        rollouts = full_size.full_rollouts(shape, num_prompts, group_size, answer)
        (batch,) = minibatches.split(
            full_size.full_prompts(shape, lengths, num_prompts),
            rollouts,
            np.random.default_rng(2).standard_normal(len(rollouts.length_N)).astype(np.float32),
            minibatches.Shape(
                prompts_per_minibatch=num_prompts,
                prompts_per_microbatch=num_prompts,
                answers_per_row=group_size,
                length_multiple=16,
            ),
        )
        params, merge = workload.policy(shape)
        # `Step` adds the axis of micro-batches, which `split` has added already.
        micro = jax.tree.map(lambda x: x[0], batch)
        steps[family] = update.Step(update.make_logp(merge), params, micro)
        num_bytes = 7 * 4 * workload.num_params(params)
        work[family] = flops.grouped(
            shape.text,
            num_prompts,
            num_prompts * group_size,
            prompt=lengths.prompt,
            answer=answer,
        ) + flops.vision(
            shape.vision,
            shape.text.width,
            num_prompts * lengths.patches,
            image_patches=lengths.patches,
        )
        notes[family] = f"{cells * cells} tokens a picture, {steps[family].memory}"
    times, machine = timing.interleaved(steps, rounds=rounds, num_bytes=num_bytes, budget=30)
    return timing.table(
        f"update, {num_prompts} prompts x {group_size} answers of {answer} tokens, pictures of {side} x {side}",
        times,
        {name: flops.BACKWARD * work[name] / machine.flops for name in work},
        "useful FLOPs at the measured matmul peak",
        notes=notes,
    )
