"""An update of answers of mixed lengths: a micro-batch cut to its own, against all as long as the longest.

Lengths are log-normal around 50 tokens with one answer as long as allowed, as reasoning answers are.
"""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import flops, tables, timing, workload
from vade_jax import settings
from vade_jax.trainer import minibatches, objectives, update
from vade_jax.types import Batch, Params, Rollouts, TrainState

CUT, PADDED = "cut to one of three lengths", "padded to the longest"
SPREAD = (0.8, 0.4)  # of log lengths: between prompts, and between answers to one


def compare(
    model_size: dict[str, int], sizes: workload.Sizes, *, rounds: int
) -> tables.Table:
    """Returns whole updates of the same answers, in micro-batches of two prompts."""
    shape = workload.text_model(**model_size)
    params, merge = workload.policy(shape)
    rollouts = mixed(shape, sizes)
    batch = _batch(shape, sizes, rollouts)
    steps = {
        CUT: _step(merge, params, batch, minibatches.in_shortest),
        PADDED: _step(merge, params, batch, lambda run: run),
    }
    times, machine = timing.interleaved(
        steps, rounds=rounds, num_bytes=7 * 4 * flops.num_params(params), budget=30
    )
    useful = flops.BACKWARD * _useful(shape, sizes, rollouts.length_N) / machine.flops
    share = minibatches.padding([batch])["perf/padding_answers"]
    padded = 1 - float(batch.mask_NT.sum()) / batch.mask_NT.size
    return tables.Table.of(
        f"update of mixed lengths, {sizes}, mean {rollouts.length_N.mean():.0f}",
        times,
        dict.fromkeys(times, useful),
        floor="useful FLOPs, no padding, at the measured matmul peak",
        notes={
            CUT: f"{share:.0%} of answer slots are padding",
            PADDED: f"{padded:.0%} of answer slots are padding",
        },
    )


def mixed(shape, sizes: workload.Sizes) -> Rollouts:
    """Returns random answers, of which one is as long as allowed."""
    rng = np.random.default_rng(0)
    M, G, N = sizes.num_prompts, sizes.group_size, sizes.num_answers
    between, within = SPREAD
    log_MG = np.log(50) + rng.normal(0, between, (M, 1)) + rng.normal(0, within, (M, G))
    length_N = np.exp(log_MG).astype(np.int32).clip(4, sizes.answer).reshape(-1)
    length_N[0] = sizes.answer
    size = (N, sizes.answer)
    return Rollouts(
        token_NT=rng.integers(0, shape.image_token_id - 16, size, np.int32),
        length_N=length_N,
        logp_NT=np.full(size, -6, np.float32),
        group_N=np.repeat(np.arange(M, dtype=np.int32), G),
        finished_N=np.ones(N, bool),
        valid_N=np.ones(N, bool),
        params_version=np.int32(0),
    )


def _batch(shape, sizes, rollouts) -> Batch:
    rng = np.random.default_rng(1)
    (batch,) = minibatches.split(
        workload.text_prompts(shape, sizes.num_prompts, sizes.prompt),
        rollouts,
        rng.standard_normal(sizes.num_answers).astype(np.float32),
        minibatches.Shape(
            prompts_per_minibatch=sizes.num_prompts,
            prompts_per_microbatch=2,
            answers_per_row=sizes.group_size,
            length_multiple=sizes.prompt,
        ),
    )
    return batch


def _step(merge, params: Params, batch: Batch, cut):
    logp = update.make_logp(merge, temperature=1.0, banned=(), chunk=1024, remat=False)
    loss = settings.Loss(dual_clip=0.0, kl_coef=0.0)
    transform = update.make_optimizer(settings.Optimizer(learning_rate=1e-6))
    step = jax.jit(update.make(logp, objectives.group_rl(loss), transform, cut=cut))
    state = TrainState(
        params=params, opt_state=transform.init(params), step=jnp.int32(0)
    )
    return lambda: step(state, batch)


def _useful(shape, sizes, length_N) -> int:
    """Returns the FLOPs of a forward without padding."""
    M, prompt = sizes.num_prompts, sizes.prompt
    lengths_N = [int(x) for x in length_N]
    pairs = M * flops.triangle(prompt)
    pairs += sum(x * prompt + flops.triangle(x) for x in lengths_N)
    tokens = sum(lengths_N)
    work = flops.layers(shape.text, M * prompt + tokens)
    return work + flops.attention(shape.text, pairs) + flops.head(shape.text, tokens)
