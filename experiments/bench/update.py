"""Times one optimizer update: prompts once or one row for each answer, compared with TRL, with mixed lengths.

Every case has the same parameters, tokens and loss. The log-probs of the behaviour policy are the model's own
plus noise, so that ratios, clips and the loss depend on the model.
"""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from experiments.bench import prefix_grouper, timing, trl_update, workload
from vade_jax import settings
from vade_jax.models import logprobs
from vade_jax.models.qwen import flops
from vade_jax.trainer import minibatches, objectives, update
from vade_jax.types import Batch, Params, Rollouts, TrainState

LOSS = {"clip_low": 0.2, "clip_high": 0.2, "kl": "k3", "kl_coef": 0.01}
OPTIMIZER = {"learning_rate": 1e-6, "weight_decay": 0.01, "clip_norm": 1.0}
CHUNK = 1024
GROUPED, PLAIN = "grouped (prompts once)", "plain (one row an answer)"
YARDSTICK = {"width": 256, "num_layers": 4, "mlp_width": 688, "vocab_size": 2048}
SMALL = {"width": 128, "num_layers": 2, "mlp_width": 64, "vocab_size": 64}


def run(quick: bool) -> Iterator[timing.Table]:
    """Yields tables: long prompts, the yardstick compared with TRL and in parts, and mixed lengths."""
    if quick:
        sizes = workload.Sizes(num_prompts=2, group_size=2, prompt=16, answer=8)
        setup, rounds = Setup(SMALL, sizes), 2
    else:
        long = workload.Sizes(num_prompts=2, group_size=8, prompt=1024, answer=256)
        yield compare(Setup(YARDSTICK, long), rounds=4)
        sizes = workload.Sizes(num_prompts=4, group_size=8, prompt=512, answer=64)
        setup, rounds = Setup(YARDSTICK, sizes), 8
    yield compare(setup, rounds=rounds, with_peers=True)
    if not quick:
        short = workload.Sizes(num_prompts=4, group_size=8, prompt=128, answer=64)
        yield compare(Setup(YARDSTICK, short), rounds=rounds, with_peers=True)
    yield pieces(setup, rounds=rounds)
    sizes = workload.Sizes(num_prompts=16, group_size=8, prompt=256, answer=256)
    if quick:
        sizes = workload.Sizes(num_prompts=4, group_size=2, prompt=16, answer=64)
    yield mixed_lengths(SMALL if quick else YARDSTICK, sizes, rounds=rounds)


# ------------------------------------------------------------------------------ prompts once, or copied
class Setup:
    """A model, the same slightly off-policy answers in both layouts, and our update on them."""

    def __init__(self, model_size: dict[str, int], sizes: workload.Sizes):
        self.sizes, self.shape = sizes, workload.text_model(**model_size)
        self.params, self.merge = workload.policy(self.shape)
        batch = workload.grouped_batch(self.shape, sizes)
        self.logp = make_logp(self.merge)
        logp_NT = jax.device_get(jax.jit(self.logp)(self.params, batch).logp_NT)
        rng = np.random.default_rng(3)
        noisy = [logp_NT + 0.1 * rng.standard_normal(logp_NT.shape, np.float32) for _ in range(2)]
        self.batch = batch.replace(old_logp_NT=noisy[0], ref_logp_NT=noisy[1])
        self.rows = workload.plain_batch(self.shape, sizes, self.batch)
        self.grouped = Step(self.logp, self.params, self.batch)

    @property
    def forward_flops(self) -> dict[str, int]:
        """Returns the FLOPs of one forward in both layouts."""
        M, N = self.sizes.num_prompts, self.sizes.num_answers
        lengths = {"prompt": self.sizes.prompt, "answer": self.sizes.answer}
        return {
            GROUPED: flops.grouped(self.shape.text, M, N, **lengths),
            PLAIN: flops.grouped(self.shape.text, N, N, **lengths),
        }

    @property
    def adamw_bytes(self) -> int:
        """Returns the bytes that AdamW moves: gradient, parameter and two moments in; the last three out."""
        return 7 * 4 * workload.num_params(self.params)


class Step:
    """A compiled update and its state; each call takes one step."""

    def __init__(self, logp: update.Forward, params: Params, batch: Batch):
        transform = update.make_optimizer(settings.Optimizer(**OPTIMIZER))
        loss = settings.Loss(dual_clip=0.0, **LOSS)
        step = update.make(logp, objectives.group_rl(loss), transform)

        @jax.jit
        def start(params):
            copy = jax.tree.map(jnp.copy, params)
            return TrainState(params=copy, opt_state=transform.init(params), step=jnp.int32(0))

        self._state = start(params)
        self._batch = jax.device_put(jax.tree.map(lambda x: np.asarray(x)[None], batch))
        lowered = jax.jit(step, donate_argnums=0).lower(self._state, self._batch)
        self._step = lowered.compile()
        temporary = self._step.memory_analysis().temp_size_in_bytes
        self.memory = f"{temporary / 2**20:.0f} MB of temporaries"
        metrics = self()
        self.loss = float(metrics["actor/loss"])
        self.gradient = float(metrics["actor/grad_norm"])

    def __call__(self):
        self._state, metrics = self._step(self._state, self._batch)
        return metrics


def make_logp(merge) -> update.Forward:
    """Returns the trainer's own function of log-probs."""
    return update.make_logp(merge, temperature=1.0, banned=(), chunk=CHUNK)


def make_plain_logp(merge) -> update.Forward:
    """Returns a function of the log-probs of full-length rows, each a prompt and one answer."""

    def logp(params: Params, batch: Batch) -> logprobs.Tokens:
        model, T = merge(params), batch.token_NT.shape[1]
        hidden_NSD = model.hidden(batch.prompts)
        return logprobs.selected(
            hidden_NSD[:, -T - 1 : -1], model.head(), batch.token_NT, chunk=CHUNK
        )

    return logp


def compare(setup: Setup, *, rounds: int, with_peers: bool = False) -> timing.Table:
    """Returns the times of whole updates: forward, backward, clip and AdamW."""
    plain = Step(make_plain_logp(setup.merge), setup.params, setup.rows)
    steps = {GROUPED: setup.grouped, PLAIN: plain}
    peers = {trl_update: PLAIN, prefix_grouper: GROUPED} if with_peers else {}
    model, loss = (setup.shape, setup.params), {**LOSS, **OPTIMIZER}
    if with_peers and trl_update.VERSION:
        steps[trl_update.NAME] = trl_update.of_text(*model, setup.rows, setup.sizes, **loss)
    if with_peers and prefix_grouper.VERSION:
        grouped = (setup.batch, setup.sizes)
        steps[prefix_grouper.NAME] = prefix_grouper.Step(*model, *grouped, **loss)
    times, machine = timing.interleaved(
        steps, rounds=rounds, num_bytes=setup.adamw_bytes, budget=30
    )
    work = setup.forward_flops
    work |= {peer.NAME: work[layout] for peer, layout in peers.items()}
    floors = {n: flops.BACKWARD * work[n] / machine.flops for n in work}
    size = f"{workload.num_params(setup.params) / 1e6:.1f} M parameters"
    table = timing.table(
        f"update, {size}, {setup.sizes}, float32",
        times,
        floors,
        _floor(machine, work),
        notes={name: f"loss {s.loss:.6f}, {s.memory}" for name, s in steps.items()},
        facts={n: {"loss": s.loss, "gradient": s.gradient} for n, s in steps.items()},
    )
    for peer in peers:
        if not peer.VERSION:
            note = f"not installed: pip install {peer.REQUIREMENT}"
            table.rows.append(timing.Row(peer.NAME, None, None, floors[peer.NAME], note))
    return table


def pieces(setup: Setup, *, rounds: int) -> timing.Table:
    """Returns the times of the parts of the grouped update."""
    params, transform = setup.params, update.make_optimizer(settings.Optimizer(**OPTIMIZER))
    moments, total = jax.jit(transform.init)(params), total_logp(setup.logp, setup.batch)
    forward, gradient = jax.jit(total), jax.jit(jax.grad(total))
    adamw = jax.jit(transform.update)
    cases = {
        "whole update": setup.grouped,
        "forward": lambda: forward(params),
        "forward and backward": lambda: gradient(params),
        "clip and AdamW": lambda: adamw(params, moments, params),
    }
    num_bytes = setup.adamw_bytes
    times, machine = timing.interleaved(cases, rounds=rounds, num_bytes=num_bytes)
    one = setup.forward_flops[GROUPED] / machine.flops
    memory = num_bytes / machine.bandwidth
    floors = dict(zip(cases, (3 * one + memory, one, 3 * one, memory), strict=True))
    floor = _floor(machine, setup.forward_flops)
    floor += f"; AdamW: its arrays at {machine.bandwidth / 1e9:.1f} GB/s"
    return timing.table(f"parts of {GROUPED}, {setup.sizes}", times, floors, floor)


def total_logp(logp: update.Forward, batch: Batch) -> Callable[[Params], jax.Array]:
    """Returns the sum of all log-probs, the cheapest objective that needs every one of them."""
    return lambda params: jnp.sum(logp(params, batch).logp_NT)


def _floor(machine: timing.Speed, work: dict[str, int]) -> str:
    return (
        f"useful FLOPs at the measured matmul peak, {machine.flops / 1e9:.0f} GFLOP/s; "
        f"plain needs {work[PLAIN] / work[GROUPED]:.2f} x the FLOPs of grouped"
    )


# ------------------------------------------------------------------------------ mixed lengths
CUT, PADDED = "cut to one of three lengths", "padded to the longest"
SPREAD = (0.8, 0.4)  # std of log lengths: between prompts, and between answers to one prompt


def mixed_lengths(
    model_size: dict[str, int], sizes: workload.Sizes, *, rounds: int
) -> timing.Table:
    """Returns the times of updates in micro-batches of two prompts, each cut to its longest answer or padded.

    Lengths are log-normal around 50 tokens, and one answer is as long as allowed, as with reasoning answers.
    """
    shape = workload.text_model(**model_size)
    params, merge = workload.policy(shape)
    rollouts = _mixed_rollouts(shape, sizes)
    (batch,) = minibatches.split(
        workload.text_prompts(shape, sizes),
        rollouts,
        np.random.default_rng(1).standard_normal(sizes.num_answers).astype(np.float32),
        minibatches.Shape(
            prompts_per_minibatch=sizes.num_prompts,
            prompts_per_microbatch=2,
            answers_per_row=sizes.group_size,
            length_multiple=sizes.prompt,
        ),
    )
    loss = objectives.group_rl(settings.Loss(dual_clip=0.0, kl_coef=0.0))
    transform = update.make_optimizer(settings.Optimizer(learning_rate=1e-6))
    state = TrainState(params=params, opt_state=transform.init(params), step=jnp.int32(0))

    def step(cut):
        one = jax.jit(update.make(make_logp(merge), loss, transform, cut=cut))
        return lambda: one(state, batch)

    times, machine = timing.interleaved(
        {CUT: step(minibatches.in_shortest), PADDED: step(lambda run: run)},
        rounds=rounds,
        num_bytes=7 * 4 * workload.num_params(params),
        budget=30,
    )
    share = minibatches.padding([batch])["perf/padding_answers"]
    padded = 1 - float(batch.mask_NT.sum()) / batch.mask_NT.size
    work = sum(
        flops.grouped(shape.text, 0, 1, prompt=sizes.prompt, answer=int(x))
        for x in rollouts.length_N
    ) + flops.grouped(shape.text, sizes.num_prompts, 0, prompt=sizes.prompt, answer=0)
    useful = flops.BACKWARD * work / machine.flops
    return timing.table(
        f"update of mixed lengths, {sizes}, mean {rollouts.length_N.mean():.0f}",
        times,
        dict.fromkeys(times, useful),
        "useful FLOPs, no padding, at the measured matmul peak",
        notes={
            CUT: f"{share:.0%} of answer slots are padding",
            PADDED: f"{padded:.0%} of answer slots are padding",
        },
    )


def _mixed_rollouts(shape, sizes: workload.Sizes) -> Rollouts:
    """Returns random answers of mixed lengths; one is as long as allowed."""
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
