"""From the settings of a run to what `trainer.loop.run` is given.

Each function takes the settings it reads and returns one part. The compiled programs are made here, at
the edge: everything below is plain functions of arrays.
"""

import dataclasses
import functools

import jax
import jax.numpy as jnp

from vade_jax import settings
from vade_jax.data import loading, tokens
from vade_jax.evals import validation
from vade_jax.models.qwen25vl import files, flops, model
from vade_jax.models.qwen25vl.config import PRESETS
from vade_jax.rewards import functions, mix
from vade_jax.rollout.engine import Sampling
from vade_jax.run.datasets import Datasets
from vade_jax.trainer import (
    hardware,
    mesh,
    minibatches,
    objectives,
    processes,
    scoring,
    update,
)
from vade_jax.types import Params, TrainState


# ------------------------------------------------------------------------------ the policy
@dataclasses.dataclass(frozen=True)
class Policy:
    """A checkpoint on the devices."""

    directory: str
    shape: object  # models.qwen25vl.config.Config
    graphdef: object
    params: Params
    shardings: Params
    tokenizer: tokens.Tokenizer
    mesh: jax.sharding.Mesh

    @property
    def merge(self):
        """Returns params -> the model with them; it does not keep this policy's alive."""
        return functools.partial(model.merge, self.graphdef)


def load_policy(run: settings.Run, directory: str) -> Policy:
    """Loads the Hugging Face directory that a run starts from, once it is known to fit.

    Raises:
        ValueError: the mesh does not divide a batch, or the model is of another size.
    """
    devices = mesh.make(**run.mesh.to_dict())
    micro = run.batch.prompts_per_microbatch
    mesh.check_batch(devices, "batch.prompts_per_microbatch", micro)
    if run.warm_start.num_steps:
        mesh.check_batch(devices, "warm_start.batch_size", run.warm_start.batch_size)
    _check_size(run.model.size, files.load_config(directory), directory)
    return place_policy(directory, devices, compute_dtype(run.model, devices))


def place_policy(directory: str, devices: jax.sharding.Mesh, dtype: jnp.dtype) -> Policy:
    """Loads a Hugging Face directory onto the mesh: float32 master weights, computing in `dtype`.

    Raises:
        ValueError: the mesh does not divide the model.
    """
    shape = files.load_config(directory)
    mesh.check_model(devices, shape)
    shardings = mesh.shardings(devices, model.abstract(shape))
    _, params = files.load(directory, jnp.float32, shardings)
    return Policy(
        directory=str(directory),
        shape=shape,
        graphdef=model.graph(shape, dtype=dtype, place=mesh.Place(devices)),
        params=params,
        shardings=shardings,
        tokenizer=tokens.Tokenizer.load(directory),
        mesh=devices,
    )


def compute_dtype(model: settings.Model, devices: jax.sharding.Mesh) -> jnp.dtype:
    """Returns what the model computes in: as the settings say, or as the devices like it."""
    if model.dtype != "auto":
        return jnp.dtype(model.dtype)
    return jnp.dtype("float32" if mesh.Place(devices).platform == "cpu" else "bfloat16")


def _check_size(wanted: str, shape, directory: str) -> None:
    """Raises ValueError for another shape than `wanted`, before weights are read."""
    text = shape.text
    if not wanted or text == PRESETS[wanted].text:
        return
    names = [name for name, preset in PRESETS.items() if preset.text == text]
    found = names[0] if names else f"{text.num_layers} layers of width {text.width}"
    raise ValueError(
        f"model.size={wanted!r}, but the checkpoint in {directory} has the shape of "
        f"{found!r}: give another one, or --config.model.size= for any"
    )


# ------------------------------------------------------------------------------ learning
def make_learner(
    run: settings.Run, policy: Policy, map: loading.Map = loading.in_turn
) -> tuple[TrainState, update.Learner]:
    """Returns the first state, and what improves it; `map` maps over micro-batches."""
    transform = update.make_optimizer(run.optimizer)
    reference = _reference_params(policy) if run.loss.kl_coef else None
    state, shardings = make_state(policy, transform, copy=reference is policy.params)
    improve, score = make_programs(run, policy, transform, shardings)
    micro = run.batch.prompts_per_microbatch
    learner = update.Learner(
        update=improve,
        score=score,
        shape=minibatches.Shape(
            prompts_per_minibatch=run.batch.prompts_per_minibatch,
            prompts_per_microbatch=micro,
            answers_per_row=answers_per_row(run),
            rows_per_microbatch=num_rows(run, micro),
            length_multiple=run.data.length_multiple,
            ways=mesh.batch_size(policy.mesh),
        ),
        reference=reference,
        old_logp=run.loss.old_logp,
        mask_cut_off=run.loss.mask_cut_off,
        put=functools.partial(processes.put, sharding=mesh.batch_sharding(policy.mesh, axis=1)),
        map=map,
        utilisation=make_utilisation(run, policy),
    )
    return state, learner


def make_utilisation(run: settings.Run, policy: Policy) -> hardware.Utilisation:
    """Returns what compares the speed of learning with the peak of the devices."""
    scores = (run.loss.old_logp == "trainer") + bool(run.loss.kl_coef)
    kind = policy.mesh.devices.flat[0].device_kind
    peak = run.perf.peak_tflops or hardware.peak_tflops(kind, policy.merge(policy.params).dtype)
    return hardware.Utilisation(
        shape=policy.shape,
        forwards=flops.BACKWARD + scores,
        vision_forwards=flops.BACKWARD + scores,
        peak=1e12 * peak * policy.mesh.size,
    )


def answers_per_row(run: settings.Run) -> int:
    """Returns how many answers share one copy of their prompt in memory."""
    return run.batch.answers_per_row or run.num_rollouts


def num_rows(run: settings.Run, num_prompts: int) -> int:
    """Returns the most rows that `num_prompts` prompts take with G answers each on average.

    0, for as many as there are, where every group fills its row.
    """
    per_row = answers_per_row(run)
    if per_row == run.num_rollouts:
        return 0
    return num_prompts + num_prompts * (run.num_rollouts - 1) // per_row


def make_programs(run: settings.Run, policy: Policy, transform, state_shardings: TrainState):
    """Returns the jitted update and log-probs of a run; `policy` may be abstract."""
    logp = make_logp(run, policy, run.sampling.temperature)
    objective = objectives.group_rl(run.loss, run.sampling.max_tokens)
    rate = update.schedule(run.optimizer)
    step = update.make(logp, objective, transform, learning_rate=rate)
    improve = compile_update(step, policy.mesh, state_shardings)
    batch = mesh.batch_sharding(policy.mesh, axis=1)
    score = jax.jit(
        update.make_score(logp),
        in_shardings=(policy.shardings, batch),
        out_shardings=batch,
    )
    return improve, score


def make_logp(run: settings.Run, policy: Policy, temperature: float) -> update.Policy:
    """Returns params, batch -> log-probs and entropies of the answers, as the policy acts."""
    return update.make_logp(
        policy.merge,
        temperature=temperature,
        banned=policy.tokenizer.banned_ids,
        chunk=run.batch.vocab_chunk,
        remat=run.batch.remat,
    )


def compile_update(step: update.Update, devices, state_shardings) -> update.Update:
    """Returns the update, jitted once with shardings; it takes the state's memory."""
    batch = mesh.batch_sharding(devices, axis=1)
    return jax.jit(
        step,
        in_shardings=(state_shardings, batch),
        out_shardings=(state_shardings, None),
        donate_argnums=0,
    )


def make_state(policy: Policy, transform, *, copy: bool = False) -> tuple[TrainState, TrainState]:
    """Returns the first state and its shardings.

    Without `copy` it takes the policy's parameters over: the first update deletes them.
    """
    shardings = mesh.shardings(policy.mesh, abstract_state(policy, transform))

    def placed(function, where):
        return jax.jit(function, out_shardings=where)(policy.params)

    params = policy.params
    if copy:
        params = placed(lambda params: jax.tree.map(jnp.copy, params), shardings.params)
    return TrainState(
        params=params,
        opt_state=placed(transform.init, shardings.opt_state),
        step=placed(lambda _: jnp.int32(0), shardings.step),
    ), shardings


def abstract_state(policy: Policy, transform) -> TrainState:
    """Returns the shapes of the first state."""
    return TrainState(
        params=jax.eval_shape(lambda params: params, policy.params),
        opt_state=jax.eval_shape(transform.init, policy.params),
        step=jax.ShapeDtypeStruct((), jnp.int32),
    )


def _reference_params(policy: Policy) -> Params:
    """Returns the weights as the model uses them, in its dtype: float32 ones are shared."""
    dtype = policy.merge(policy.params).dtype
    if dtype == jnp.float32:
        return policy.params

    def cast(params):
        return jax.tree.map(lambda x: x.astype(dtype), params)

    return jax.jit(cast, out_shardings=policy.shardings)(policy.params)


# ------------------------------------------------------------------------------ reward, validation
def make_scorer(run: settings.Run, policy: Policy) -> scoring.Scorer:
    """Returns the reward; validation looks at what is correct alone."""
    limit, buffer = run.sampling.max_tokens, run.reward.overlong_buffer
    judge, options = mix.by_rules(run.reward.format, run.reward.format_weight), {}
    if run.reward.functions:
        judge = make_judge(run.reward)
        options = {"num_threads": judge.num_threads, "metrics": judge.metrics}
    return scoring.make_scorer(
        policy.tokenizer.decode,
        judge,
        by_length=lambda length: (
            run.reward.overlong_factor * mix.overlong_penalty(length, limit, buffer)
        ),
        **options,
    )


def make_judge(reward: settings.Reward) -> functions.Several:
    """Returns the judge of `reward.function`.

    Raises:
        ValueError: there is no such function.
    """

    def make(name: str) -> mix.Judge:
        if name == functions.RULES:
            return mix.by_rules(reward.format, reward.format_weight)
        return functions.Own(name, functions.load(name), reward.timeout_s)

    names = reward.functions
    weights = reward.weights or [1.0] * len(names)
    return functions.Several([*map(make, names)], weights, reward.correct_above, reward.concurrency)


def check_reward(run: settings.Run, data: Datasets, num_rows: int = 4) -> None:
    """Calls the run's own reward functions on rows from all over the data, and prints what they say.

    Raises:
        ValueError: a function fails; names it, the row and the answer.
    """
    if run.reward.functions:
        step = max(1, len(data.train) // num_rows)
        items = [data.train[i] for i in range(0, len(data.train), step)][:num_rows]
        encode = data.build_prompt.tokenizer.encode
        print(functions.check(make_judge(run.reward), items, run.reward.format, encode))


def make_validation(run: settings.Run, policy: Policy, data: Datasets) -> validation.Validate:
    """Returns the validation, mean of k sampled answers: the run's own, and benchmarks'.

    Raises:
        ValueError: an item of a benchmark makes no prompt.
    """
    own = validation.of_items(
        "validation",
        data.validation,
        data.build_prompt,
        make_scorer(run, policy),
        num_samples=run.eval.num_samples,
        sampling=Sampling(temperature=run.eval.temperature, max_tokens=run.eval.max_tokens),
    )
    others = validation.make(run, policy.tokenizer, data.benchmarks)
    return validation.together([own, *others])
