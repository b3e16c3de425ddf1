"""From a config to the parts of a run. ConfigDicts stop here."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from ml_collections import ConfigDict

from experiments import checks
from vade_jax import samplers
from vade_jax.data import tokens
from vade_jax.evals import runner
from vade_jax.models.qwen25vl import files, model
from vade_jax.models.qwen25vl.config import PRESETS
from vade_jax.rollout.engine import Sampling
from vade_jax.rollout.local import LocalEngine
from vade_jax.trainer import (
    learner,
    mesh,
    objectives,
    optimizer,
    scoring,
    update,
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

    def merge(self, params: Params):
        """Returns the model with `params`."""
        return model.merge(self.graphdef, params)


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
    _check_size(c.model.size, directory)
    shape, params = files.load(directory, dtype=jnp.float32)
    dtype = {"auto": _device_dtype(), "float32": jnp.float32, "bfloat16": jnp.bfloat16}
    shardings = mesh.shardings(devices, params)
    return Policy(
        directory=str(directory),
        shape=shape,
        graphdef=model.graph(shape, dtype=dtype[c.model.dtype]),
        params=jax.device_put(params, shardings),
        shardings=shardings,
        tokenizer=tokens.Tokenizer.load(directory),
        mesh=devices,
    )


def sampler(c: ConfigDict) -> samplers.Sampler:
    """Returns the selector."""
    return samplers.SAMPLERS[c.sampler.name](**checks.sampler_options(c))


def engine(c: ConfigDict, policy: Policy) -> LocalEngine:
    """Returns the rollout engine, with the policy's weights as version 0."""
    return LocalEngine(
        policy.merge,
        policy.params,
        sampling=Sampling(**c.sampling),
        stop_ids=policy.tokenizer.stop_ids,
        banned_ids=policy.tokenizer.banned_ids,
        answers_per_row=c.num_rollouts,
        prompts_per_call=c.engine.prompts_per_call,
        length_multiple=c.data.length_multiple,
    )


def score(c: ConfigDict, policy: Policy) -> scoring.Score:
    """Returns the reward."""
    return scoring.make(
        policy.tokenizer.decode,
        form=c.reward.format,
        format_weight=c.reward.format_weight,
    )


def validate(c: ConfigDict, policy: Policy, items: Sequence[Item], build_prompt):
    """Returns the validation, average of k sampled answers."""
    return runner.make(
        "validation",
        items,
        build_prompt,
        score(c, policy),
        num_samples=c.eval.num_samples,
        sampling=Sampling(temperature=c.eval.temperature, max_tokens=c.eval.max_tokens),
    )


def learn(c: ConfigDict, policy: Policy) -> tuple[TrainState, learner.Learner]:
    """Returns the first state, and what improves it."""
    logp = log_probs(c, policy)
    transform = optimizer.make(**c.optimizer)
    state, state_shardings = train_state(policy, transform)
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
    reference = policy.params if c.loss.kl_coef else None
    return state, learner.Learner(
        update=improve,
        score=score,
        layout=dict(
            prompts_per_minibatch=c.batch.prompts_per_minibatch,
            prompts_per_microbatch=c.batch.prompts_per_microbatch,
            answers_per_row=c.num_rollouts,
            length_multiple=c.data.length_multiple,
            ways=mesh.batch_size(policy.mesh),
        ),
        reference=reference,
        old_logp=c.loss.old_logp,
    )


def log_probs(c: ConfigDict, policy: Policy, temperature: float | None = None):
    """Returns params, batch -> log-probs of the answers, as the policy acts."""
    return update.make_logp(
        policy.merge,
        temperature=temperature or c.sampling.temperature,
        banned=policy.tokenizer.banned_ids,
        chunk=c.batch.vocab_chunk,
        remat=c.batch.remat,
    )


def train_state(policy: Policy, transform) -> tuple[TrainState, TrainState]:
    """Returns a state that owns copies of the parameters, and its shardings."""

    def start(params):
        return TrainState(
            params=jax.tree.map(jnp.copy, params),
            opt_state=transform.init(params),
            step=jnp.int32(0),
        )

    shapes = jax.eval_shape(start, policy.params)
    shardings = mesh.shardings(policy.mesh, shapes)
    return jax.jit(start, out_shardings=shardings)(policy.params), shardings


def compile_update(step: update.Update, devices, state_shardings) -> update.Update:
    """Returns the update, jitted once with shardings; it takes the state's memory."""
    batch = mesh.batch_sharding(devices, axis=1)
    return jax.jit(
        step,
        in_shardings=(state_shardings, batch),
        out_shardings=(state_shardings, None),
        donate_argnums=0,
    )


def _check_size(wanted, directory):
    """Raises ValueError for another shape than `wanted`, before weights are read."""
    text = files.load_config(directory).text
    if not wanted or text == PRESETS[wanted].text:
        return
    names = [name for name, preset in PRESETS.items() if preset.text == text]
    found = names[0] if names else f"{text.num_layers} layers of width {text.width}"
    raise ValueError(
        f"model.size={wanted!r}, but the checkpoint in {directory} has the shape of "
        f"{found!r}: give another one, or --config.model.size= for any"
    )


def _device_dtype():
    return jnp.float32 if jax.default_backend() == "cpu" else jnp.bfloat16
