"""From a config to the parts of a run. ConfigDicts stop here."""

import dataclasses
import functools
import types
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments import checks
from vade_jax import samplers
from vade_jax.data import loading, tokens
from vade_jax.evals import validation
from vade_jax.models.qwen25vl import files, model
from vade_jax.models.qwen25vl.config import PRESETS
from vade_jax.rewards import mix
from vade_jax.rollout.engine import Sampling
from vade_jax.trainer import (
    feedback,
    learner,
    loop,
    mesh,
    objectives,
    optimizer,
    processes,
    rounds,
    scoring,
    update,
)
from vade_jax.trainer import (
    measure as measures,
)
from vade_jax.types import Item, Params, TrainState


@dataclasses.dataclass(frozen=True)
class Policy:
    """A checkpoint on the devices."""

    directory: str
    shape: object
    graphdef: object
    params: Params
    shardings: Params
    tokenizer: tokens.Tokenizer
    mesh: jax.sharding.Mesh

    @property
    def merge(self):
        """Returns params -> the model with them; it does not keep this policy's alive."""
        return functools.partial(model.merge, self.graphdef)


def policy(c: ConfigDict, directory: str) -> Policy:
    """Loads a Hugging Face directory onto the mesh, float32 master weights.

    Raises:
        ValueError: the mesh does not divide a batch, or the model is of another size.
    """
    devices = mesh.make(**c.mesh)
    size = c.batch.prompts_per_microbatch
    mesh.check_batch(devices, "batch.prompts_per_microbatch", size)
    if c.warm_start.num_steps:
        mesh.check_batch(devices, "warm_start.batch_size", c.warm_start.batch_size)
    shape = files.load_config(directory)
    _check_size(c.model.size, shape, directory)
    mesh.check_model(devices, shape)
    shardings = mesh.shardings(devices, model.abstract(shape))
    _, params = files.load(directory, jnp.float32, shardings)
    return Policy(
        directory=str(directory),
        shape=shape,
        graphdef=model.graph(shape, dtype=compute_dtype(c), place=mesh.Place(devices)),
        params=params,
        shardings=shardings,
        tokenizer=tokens.Tokenizer.load(directory),
        mesh=devices,
    )


def sampler(c: ConfigDict) -> samplers.Sampler:
    """Returns the selector."""
    return samplers.SAMPLERS[c.sampler.name](**checks.sampler_options(c))


def refill(c: ConfigDict) -> rounds.Refill:
    """Returns what a step does about groups that the selector drops."""
    return rounds.Refill(**c.refill)


def measure(c: ConfigDict) -> measures.Measure:
    """Returns when all items are rolled out for the selector alone."""
    return measures.Measure(
        every=c.measure.every, num_rollouts=c.measure.num_rollouts or c.num_rollouts
    )


def advantage(c: ConfigDict) -> feedback.Advantage:
    """Returns how the answers of a group are compared."""
    return functools.partial(feedback.group_normalized, std=c.scale_by_std)


def judge(c: ConfigDict, policy: Policy) -> scoring.Judge:
    """Returns the reward; validation looks at what is correct alone."""
    limit, buffer = c.sampling.max_tokens, c.reward.overlong_buffer
    factor = c.reward.overlong_factor
    return scoring.make(
        policy.tokenizer.decode,
        form=c.reward.format,
        format_weight=c.reward.format_weight,
        by_length=lambda length: factor * mix.overlong_penalty(length, limit, buffer),
    )


def validate(
    c: ConfigDict,
    policy: Policy,
    items: Sequence[Item],
    build_prompt,
    benchmarks: Mapping[str, Sequence[Item]] = types.MappingProxyType({}),
) -> validation.Validate:
    """Returns the validation, average of k sampled answers: the run's own, and benchmarks'.

    Raises:
        ValueError: an item of a benchmark makes no prompt.
    """
    own = validation.of_items(
        "validation",
        items,
        build_prompt,
        judge(c, policy),
        num_samples=c.eval.num_samples,
        sampling=Sampling(temperature=c.eval.temperature, max_tokens=c.eval.max_tokens),
    )
    others = validation.make(c, policy.tokenizer, benchmarks)
    return validation.together([own, *others])


def learn(
    c: ConfigDict, policy: Policy, over: loading.Map = loading.in_turn
) -> tuple[TrainState, loop.Learn]:
    """Returns the first state, and what improves it; `over` maps over micro-batches."""
    transform = optimizer.make(**c.optimizer)
    reference = reference_params(policy) if c.loss.kl_coef else None
    state, state_shardings = train_state(
        policy, transform, copy=reference is policy.params
    )
    improve, score = programs(c, policy, transform, state_shardings)
    improve = learner.Learner(
        update=improve,
        score=score,
        layout=dict(
            prompts_per_minibatch=c.batch.prompts_per_minibatch,
            prompts_per_microbatch=c.batch.prompts_per_microbatch,
            **rows(c, "rows_per_microbatch", c.batch.prompts_per_microbatch),
            length_multiple=c.data.length_multiple,
            ways=mesh.batch_size(policy.mesh),
            over=over,
        ),
        reference=reference,
        old_logp=c.loss.old_logp,
        put=functools.partial(
            processes.put, sharding=mesh.batch_sharding(policy.mesh, axis=1)
        ),
    )
    return state, without_cut_off(improve) if c.loss.mask_cut_off else improve


def rows(c: ConfigDict, name: str, num_prompts: int) -> dict[str, int]:
    """Returns how uneven groups are laid out: the answers of a row, and under `name` the rows.

    As many rows as `num_prompts` prompts take at most, when they have G answers on average.
    """
    per_row = c.batch.answers_per_row or c.num_rollouts
    most = num_prompts + num_prompts * (c.num_rollouts - 1) // per_row
    even = per_row == c.num_rollouts
    return {"answers_per_row": per_row, name: 0 if even else most}


def without_cut_off(improve: loop.Learn) -> loop.Learn:
    """Returns `improve` on finished answers alone; the others still count in their group's mean."""

    def improve_finished(state, prompts, rollouts, advantage_N):
        finished_N = rollouts.valid_N & rollouts.finished_N
        rollouts = rollouts.replace(valid_N=finished_N)
        return improve(state, prompts, rollouts, advantage_N)

    return improve_finished


def programs(c: ConfigDict, policy: Policy, transform, state_shardings: TrainState):
    """Returns the jitted update and log-probs of a run; `policy` may be abstract."""
    logp = log_probs(c, policy)
    objective = objectives.group_rl(checks.policy_loss(c))
    improve = compile_update(
        update.make(logp, objective, transform), policy.mesh, state_shardings
    )
    batch = mesh.batch_sharding(policy.mesh, axis=1)
    score = jax.jit(
        update.make_score(logp),
        in_shardings=(policy.shardings, batch),
        out_shardings=batch,
    )
    return improve, score


def reference_params(policy: Policy) -> Params:
    """Returns the weights as the model uses them, in its dtype: float32 ones are shared."""
    dtype = policy.merge(policy.params).dtype
    if dtype == jnp.float32:
        return policy.params
    cast = lambda params: jax.tree.map(lambda x: x.astype(dtype), params)
    return jax.jit(cast, out_shardings=policy.shardings)(policy.params)


def log_probs(c: ConfigDict, policy: Policy, temperature: float | None = None):
    """Returns params, batch -> log-probs of the answers, as the policy acts."""
    return update.make_logp(
        policy.merge,
        temperature=temperature or c.sampling.temperature,
        banned=policy.tokenizer.banned_ids,
        chunk=c.batch.vocab_chunk,
        remat=c.batch.remat,
    )


def train_state(
    policy: Policy, transform, *, copy: bool = False
) -> tuple[TrainState, TrainState]:
    """Returns the first state and its shardings.

    Without `copy` it takes the policy's parameters over: the first update deletes them.
    """
    shardings = mesh.shardings(policy.mesh, abstract_state(policy, transform))
    placed = lambda f, where: jax.jit(f, out_shardings=where)(policy.params)
    keep = lambda params: jax.tree.map(jnp.copy, params)
    return TrainState(
        params=placed(keep, shardings.params) if copy else policy.params,
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


def compile_update(step: update.Update, devices, state_shardings) -> update.Update:
    """Returns the update, jitted once with shardings; it takes the state's memory."""
    batch = mesh.batch_sharding(devices, axis=1)
    return jax.jit(
        step,
        in_shardings=(state_shardings, batch),
        out_shardings=(state_shardings, None),
        donate_argnums=0,
    )


def _check_size(wanted, shape, directory):
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


def compute_dtype(c: ConfigDict):
    """Returns what the model computes in: as the config says, or as the devices like it."""
    if c.model.dtype != "auto":
        return jnp.dtype(c.model.dtype)
    return jnp.dtype("float32" if jax.default_backend() == "cpu" else "bfloat16")
