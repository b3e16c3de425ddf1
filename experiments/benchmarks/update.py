"""One optimizer update: prompts once (grouped) against one row an answer (plain), and against TRL.

Same parameters, same tokens, same loss. Log-probs of the behaviour policy are the model's own with
noise, so that ratios, clips and the loss depend on the model.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.benchmarks import flops, tables, timing, trl_update, workload
from vade_jax.trainer import logprobs, objectives, optimizer, update
from vade_jax.types import Batch, Params, TrainState

LOSS = {"clip_low": 0.2, "clip_high": 0.2, "kl": "k3", "kl_coef": 0.01}
OPTIMIZER = {"learning_rate": 1e-6, "weight_decay": 0.01, "clip_norm": 1.0}
CHUNK = 1024
GROUPED, PLAIN = "grouped (prompts once)", "plain (one row an answer)"
YARDSTICK = {"width": 256, "num_layers": 4, "mlp_width": 688, "vocab_size": 2048}
SMALL = {"width": 128, "num_layers": 2, "mlp_width": 64, "vocab_size": 64}


def run(quick: bool) -> list[tables.Table]:
    """Returns the long-prompt update, and the yardstick in parts and beside TRL."""
    if quick:
        sizes = workload.Sizes(num_prompts=2, group_size=2, prompt=16, answer=8)
        return [
            compare(SMALL, sizes, rounds=2, with_trl=True),
            parts(SMALL, sizes, rounds=2),
        ]
    long = workload.Sizes(num_prompts=2, group_size=8, prompt=1024, answer=256)
    yardstick = workload.Sizes(num_prompts=4, group_size=8, prompt=512, answer=64)
    return [
        compare(YARDSTICK, long, rounds=4),
        compare(YARDSTICK, yardstick, rounds=8, with_trl=True),
        parts(YARDSTICK, yardstick, rounds=8),
    ]


def compare(
    model_size: dict[str, int],
    sizes: workload.Sizes,
    *,
    rounds: int,
    with_trl: bool = False,
) -> tables.Table:
    """Returns whole updates: forward, backward, clip and AdamW."""
    shape = workload.text_model(**model_size)
    params, merge = workload.policy(shape)
    batch, rows = batches(shape, sizes, params, merge)
    steps = {
        GROUPED: Step(grouped_logp(merge), params, batch),
        PLAIN: Step(plain_logp(merge), params, rows),
    }
    if with_trl and trl_update.VERSION:
        loss = {**LOSS, **OPTIMIZER}
        steps[trl_update.NAME] = trl_update.Step(shape, params, rows, sizes, **loss)
    times, machine = timing.interleaved(
        steps, rounds=rounds, num_bytes=adamw_bytes(params)
    )
    work = forward_flops(shape, sizes)
    floors = {
        n: flops.BACKWARD * work.get(n, work[PLAIN]) / machine.flops for n in steps
    }
    facts = {
        name: {"loss": s.loss, "gradient": s.gradient} for name, s in steps.items()
    }
    notes = {name: f"loss {s.loss:.6f}, {s.memory}" for name, s in steps.items()}
    size = f"{flops.num_params(params) / 1e6:.1f} M parameters, {sizes}, float32"
    table = tables.Table.of(
        f"update, {size}",
        times,
        floors,
        floor=_floor(machine, work),
        notes=notes,
        facts=facts,
    )
    if with_trl and not trl_update.VERSION:
        note = f"not installed: pip install {trl_update.REQUIREMENT}"
        floor = floors[PLAIN]
        table.rows.append(tables.Row(trl_update.NAME, None, None, floor, note))
    return table


def parts(
    model_size: dict[str, int], sizes: workload.Sizes, *, rounds: int
) -> tables.Table:
    """Returns where the grouped update's time goes, part by part."""
    shape = workload.text_model(**model_size)
    params, merge = workload.policy(shape)
    batch, _ = batches(shape, sizes, params, merge)
    logp, step = grouped_logp(merge), Step(grouped_logp(merge), params, batch)
    forward = jax.jit(lambda p: jnp.sum(logp(p, batch)))
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(logp(p, batch))))
    transform = optimizer.make(**OPTIMIZER)
    adamw = jax.jit(transform.update)
    moments = jax.jit(transform.init)(params)
    cases = {
        "whole update": step,
        "forward": lambda: forward(params),
        "forward and backward": lambda: gradient(params),
        "clip and AdamW": lambda: adamw(params, moments, params),
    }
    num_bytes = adamw_bytes(params)
    times, machine = timing.interleaved(cases, rounds=rounds, num_bytes=num_bytes)
    work = forward_flops(shape, sizes)
    one = work[GROUPED] / machine.flops
    memory = num_bytes / machine.bandwidth
    floors = dict(zip(cases, (3 * one + memory, one, 3 * one, memory), strict=True))
    floor = _floor(machine, work) + f"; AdamW: {machine.bandwidth / 1e9:.1f} GB/s"
    return tables.Table.of(f"parts of {GROUPED}, {sizes}", times, floors, floor=floor)


class Step:
    """A compiled update and its state: a call takes one step."""

    def __init__(self, logp: update.Logp, params: Params, batch: Batch):
        transform = optimizer.make(**OPTIMIZER)
        loss = objectives.PolicyLoss(ratio="token", aggregate="token-mean", **LOSS)
        step = update.make(logp, objectives.group_rl(loss), transform)
        self._state = jax.jit(functools.partial(_start, transform))(params)
        self._batch = jax.tree.map(lambda x: np.asarray(x)[None], batch)
        self._batch = jax.device_put(self._batch)
        jitted = jax.jit(step, donate_argnums=0)
        self._step = jitted.lower(self._state, self._batch).compile()
        temporary = self._step.memory_analysis().temp_size_in_bytes
        self.memory = f"{temporary / 2**20:.0f} MB of temporaries"
        metrics = self()
        self.loss = float(metrics["actor/loss"])
        self.gradient = float(metrics["actor/grad_norm"])

    def __call__(self):
        self._state, metrics = self._step(self._state, self._batch)
        return metrics


def _start(transform, params: Params) -> TrainState:
    copy = jax.tree.map(jnp.copy, params)
    return TrainState(params=copy, opt_state=transform.init(params), step=jnp.int32(0))


def grouped_logp(merge) -> update.Logp:
    """Returns the trainer's own log-probs."""
    return update.make_logp(merge, temperature=1.0, banned=(), chunk=CHUNK, remat=False)


def plain_logp(merge) -> update.Logp:
    """Returns log-probs of full-length rows, each a prompt and one answer."""

    def logp(params: Params, batch: Batch) -> jax.Array:
        model, T = merge(params), batch.token_NT.shape[1]
        hidden_NSD = model.hidden(batch.prompts, remat=False)
        return logprobs.selected(
            hidden_NSD[:, -T - 1 : -1], model.head(), batch.token_NT, chunk=CHUNK
        )

    return logp


def batches(shape, sizes: workload.Sizes, params: Params, merge) -> tuple[Batch, Batch]:
    """Returns the same answers grouped and plain, a little off-policy."""
    batch = workload.grouped_batch(shape, sizes)
    logp_NT = jax.jit(grouped_logp(merge))(params, batch)
    noise = 0.1 * np.random.default_rng(3).standard_normal(
        (2, *logp_NT.shape), np.float32
    )
    batch = batch.replace(
        old_logp_NT=logp_NT + noise[0], ref_logp_NT=logp_NT + noise[1]
    )
    return batch, workload.plain_batch(shape, sizes, batch)


def forward_flops(shape, sizes: workload.Sizes) -> dict[str, int]:
    """Returns the FLOPs of one forward in both layouts."""
    M, N = sizes.num_prompts, sizes.num_answers
    lengths = {"prompt": sizes.prompt, "answer": sizes.answer}
    return {
        GROUPED: flops.grouped(shape.text, M, N, **lengths),
        PLAIN: flops.plain(shape.text, N, **lengths),
    }


def adamw_bytes(params: Params) -> int:
    """Returns what AdamW moves: gradient, parameter, two moments in; update, moments out."""
    return 7 * 4 * flops.num_params(params)


def _floor(machine: timing.Machine, work: dict[str, int]) -> str:
    return (
        f"useful FLOPs at the measured matmul peak, {machine.flops / 1e9:.0f} GFLOP/s; "
        f"plain needs {work[PLAIN] / work[GROUPED]:.2f} x the FLOPs of grouped"
    )
