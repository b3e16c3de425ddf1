"""Builds the parts of a run, which `trainer.loop.Loop` takes, from its settings.

Each function takes the settings it reads and returns one part. Programs are jitted here, at the edge;
everything below is plain functions of arrays.
"""

import functools
import os
import shutil
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from vade_jax import rng, samplers, settings
from vade_jax.data import hub, loading
from vade_jax.models.qwen import files, flops, tiny_checkpoint
from vade_jax.rewards import functions
from vade_jax.run import cluster
from vade_jax.trainer import hardware, learner, mesh, minibatches, processes, scoring, update
from vade_jax.trainer.policy import Policy, compute_dtype, place_policy
from vade_jax.types import Batch, Params, TrainState


# ------------------------------------------------------------------------------ what a run starts from
def make_selector(run: settings.Run) -> samplers.Sampler:
    """Returns the selector with G, its options, and the seed if it draws random numbers itself.

    Raises:
        ValueError: an option is unknown or out of its range.
    """
    spec, options = samplers.find(run.selector.name), run.selector.options
    if options.get("num_rollouts", run.num_rollouts) != run.num_rollouts:
        raise ValueError("selector.options.num_rollouts is the run's: set num_rollouts")
    of_run = {"num_rollouts": run.num_rollouts, "seed": run.seed}
    try:
        return spec(**{k: v for k, v in of_run.items() if k in spec.option_names} | dict(options))
    except ValueError as error:
        raise ValueError(f"selector.options of {spec.name}: {error}") from error


def checkpoint_of(run: settings.Run, workdir: str) -> str:
    """Returns the Hugging Face directory that a run starts from; writes the tiny model of a preset.

    Raises:
        ValueError: it is a name on the hub that cannot be fetched.
    """
    if run.model.checkpoint:
        return hub.model(run.model.checkpoint)
    directory = os.path.join(workdir, "tiny_model")

    def write():
        shutil.rmtree(directory, ignore_errors=True)
        tiny_checkpoint.write(directory, run.seed, run.model.preset)

    processes.on_leader(write)
    cluster.wait_until_shared(os.path.join(directory, files.CONFIG))
    return directory


def load_policy(run: settings.Run, directory: str) -> Policy:
    """Loads the run's first weights, a Hugging Face directory, onto its mesh."""
    devices = mesh.make(**run.mesh.to_dict())
    return place_policy(
        directory,
        devices,
        compute_dtype(run.model, devices),
        run.lora,
        rng.adapter_key(jax.random.key(run.seed)) if run.lora.rank else None,
        param_dtype=jnp.dtype(run.model.param_dtype),
    )


# ------------------------------------------------------------------------------ the learner
def make_learner(
    run: settings.Run,
    policy: Policy,
    map: loading.Map = map,
    *,
    resumes: bool = False,
) -> tuple[TrainState, learner.Learner]:
    """Returns the first state, and the learner that updates it.

    The state owns the policy's parameters: the first update deletes them.

    Args:
        run: the settings.
        policy: what the run starts from.
        map: maps over micro-batches.
        resumes: the state will be read from a checkpoint, so only its shapes and shardings are returned.
            Arrays would take the memory twice while the checkpoint is read.
    """
    sizes, utilisation = batch_sizes(run, policy.mesh), make_utilisation(run, policy)
    programs = make_programs(run, policy)
    reference = learner.reference_params(policy) if run.loss.kl_coef else None
    shares = reference is policy.params
    if resumes:
        state = programs.state.replace(frozen=policy.base)
        if not shares:  # as the first update would; the caller still holds the policy
            jax.tree.map(lambda x: x.delete(), policy.params)
    else:
        state = learner.first_state(policy, programs.optimizer, copy=shares)
    return state, learner.Learner(
        update=programs.update,
        logprobs=programs.logprobs,
        split=functools.partial(minibatches.split, map=map, **sizes),
        reference=reference,
        old_logp=run.loss.old_logp,
        mask_cut_off=run.loss.mask_cut_off,
        put=functools.partial(processes.put, sharding=mesh.batch_sharding(policy.mesh, axis=1)),
        utilisation=utilisation,
    )


class Programs(NamedTuple):
    """What learns: the optimizer, the shapes of the first state, and the jitted programs of `learner`."""

    optimizer: optax.GradientTransformation
    state: TrainState
    update: update.Update
    logprobs: Callable[[Params, Params, Batch], jax.Array]


def make_programs(run: settings.Run, policy: Policy) -> Programs:
    """Returns the programs of a run; `policy` may be abstract."""
    objective = update.group_rl(run.loss, run.sampling.max_tokens)
    optimizer = update.make_optimizer(run.optimizer, run.model.param_dtype)
    logp = update.make_logp(
        policy.merge,
        banned=policy.tokenizer.banned_ids,
        temperature=run.sampling.temperature,
        chunk=run.batch.vocab_chunk,
        remat=run.batch.remat,
    )
    rate = update.schedule(run.optimizer)
    step = update.make(logp, objective, optimizer, learning_rate=rate, whole=policy.whole)
    state = learner.abstract_state(policy, optimizer)
    improve = learner.compile_update(step, policy, state)
    return Programs(optimizer, state, improve, learner.compile_logprobs(logp, policy))


def make_utilisation(run: settings.Run, policy: Policy) -> functools.partial:
    """Returns the calculator of MFU: the learning's FLOP/s over the devices' peak."""
    scores = (run.loss.old_logp == "trainer") + bool(run.loss.kl_coef)
    return functools.partial(
        hardware.utilisation,
        shape=policy.shape,
        forwards=[x + scores for x in forwards_of_an_update(run)],
        peak=hardware.peak_flops(policy.mesh, policy.dtype),
    )


def forwards_of_an_update(run: settings.Run) -> tuple[int, int]:
    """Returns the cost of an update in forwards, of the decoder and of the vision tower."""
    if not run.lora.rank:
        return flops.BACKWARD, flops.BACKWARD
    # The base's weights need no gradients, nor do activations before the first adapter.
    decoder = flops.BACKWARD - 1
    return decoder, decoder if run.lora.vision else 1


def batch_sizes(run: settings.Run, devices: jax.sharding.Mesh) -> dict[str, int]:
    """Returns how the rollouts of a step are cut for these devices, for `minibatches.split`."""
    return {
        "prompts_per_minibatch": run.batch.prompts_per_minibatch,
        "prompts_per_microbatch": run.batch.prompts_per_microbatch,
        "answers_per_row": run.num_rollouts,
        "length_multiple": run.data.length_multiple,
        "ways": mesh.batch_size(devices),
    }


# ------------------------------------------------------------------------------ reward, validation
def make_scorer(run: settings.Run, policy: Policy, opening: str) -> scoring.Scorer:
    """Returns the scorer of answers after the template's `opening`; validation uses only its `correct`."""
    judge = make_judge(run.reward, opening)
    limit, buffer = run.sampling.max_tokens, run.reward.overlong_buffer
    by_length = lambda length: functions.overlong_penalty(length, limit, buffer)
    return scoring.Scorer(policy.tokenizer.decode, judge, by_length, run.reward.concurrency)


def make_judge(reward: settings.Reward, opening: str) -> functions.SumOfJudges:
    """Returns the judge of `reward.function`, by default the rules; imports nothing yet.

    `opening` is the tag that the prompt's template opens: the first part of an answer's format.
    """
    tag = "" if reward.format == "boxed" else opening

    def make(name: str) -> functions.Judge:
        if name == functions.RULES:
            return functions.by_rules(reward.format, reward.format_weight, tag)
        return functions.UserFunction(name, name, reward.timeout_s, reward.concurrency)

    judges = [make(name) for name in reward.functions or (functions.RULES,)]
    weights = reward.weights or [1.0] * len(judges)
    return functions.SumOfJudges(judges, weights, reward.correct_above)
