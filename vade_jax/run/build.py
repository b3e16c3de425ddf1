"""Builds the parts of a run, which `trainer.loop.Loop` takes, from its settings.

Each function takes the settings it reads and returns one part. Programs are jitted here, at the edge;
everything below is plain functions of arrays.
"""

import functools
import os
import shutil
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import optax

from vade_jax import rng, samplers, settings
from vade_jax.data import hub, loading, tokens
from vade_jax.models.qwen import files, flops, tiny_checkpoint
from vade_jax.rewards import functions
from vade_jax.run import cluster
from vade_jax.trainer import (
    hardware,
    learner,
    mesh,
    minibatches,
    objectives,
    precision,
    processes,
    scoring,
    update,
)
from vade_jax.trainer.policy import Policy, compute_dtype, place_policy
from vade_jax.trainer.progress import Schedule
from vade_jax.types import TrainState


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


def make_schedule(run: settings.Run, num_items: int) -> Schedule:
    """Returns when a run over `num_items` items measures, validates and ends."""
    return Schedule(
        num_steps=run.num_steps,
        eval_every=run.eval.every,
        max_rollouts=run.max_rollouts,
        measure=run.resolved_measure,
        measures_first=make_selector(run).needs.passes == "first",
        num_items=num_items,
    )


def checkpoint_of(run: settings.Run, workdir: str) -> str:
    """Returns the Hugging Face directory that a run starts from; writes the tiny model of a preset.

    Raises:
        ValueError: it is a name on the hub that cannot be had.
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
        rng.adapter_key(jax.random.key(run.seed)),
        param_dtype=jnp.dtype(run.model.param_dtype),
    )


# ------------------------------------------------------------------------------ the learner
def make_learner(
    run: settings.Run,
    policy: Policy,
    map: loading.Map = loading.in_turn,
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
    transform, shardings = make_optimizer(run, policy)
    reference = learner.reference_params(policy) if run.loss.kl_coef else None
    shares = reference is policy.params
    if resumes:
        place = lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)
        state = jax.tree.map(place, learner.abstract_state(policy, transform), shardings)
        state = state.replace(frozen=policy.base)
        if not shares:  # as the first update would; the caller still holds the policy
            jax.tree.map(lambda x: x.delete(), policy.params)
    else:
        state, _ = learner.first_state(policy, transform, copy=shares)
    improve, logprobs = make_programs(run, policy, transform, shardings)

    return state, learner.Learner(
        update=improve,
        logprobs=logprobs,
        shape=batch_shape(run, policy.mesh),
        reference=reference,
        old_logp=run.loss.old_logp,
        mask_cut_off=run.loss.mask_cut_off,
        put=functools.partial(processes.put, sharding=mesh.batch_sharding(policy.mesh, axis=1)),
        map=map,
        utilisation=make_utilisation(run, policy),
    )


def make_utilisation(run: settings.Run, policy: Policy) -> functools.partial:
    """Returns the calculator of MFU: the learning's FLOP/s over the devices' peak."""
    scores = (run.loss.old_logp == "trainer") + bool(run.loss.kl_coef)
    kind = policy.mesh.devices.flat[0].device_kind
    peak = hardware.peak_tflops(kind, policy.dtype)
    decoder, vision = forwards_of_an_update(run)
    return functools.partial(
        hardware.utilisation,
        shape=policy.shape,
        forwards=decoder + scores,
        vision_forwards=vision + scores,
        peak=1e12 * peak * policy.mesh.size,
    )


def forwards_of_an_update(run: settings.Run) -> tuple[int, int]:
    """Returns the cost of an update in forwards, of the decoder and of the vision tower."""
    if not run.lora.rank:
        return flops.BACKWARD, flops.BACKWARD
    # The base's weights need no gradients, nor do activations before the first adapter.
    decoder = flops.BACKWARD - 1
    return decoder, decoder if run.lora.vision else 1


def batch_shape(run: settings.Run, devices: jax.sharding.Mesh) -> minibatches.Shape:
    """Returns how the rollouts of a step are cut for these devices."""
    return minibatches.Shape(
        prompts_per_minibatch=run.batch.prompts_per_minibatch,
        prompts_per_microbatch=run.batch.prompts_per_microbatch,
        answers_per_row=run.num_rollouts,
        length_multiple=run.data.length_multiple,
        ways=mesh.batch_size(devices),
    )


def make_programs(run: settings.Run, policy: Policy, transform, shardings: TrainState):
    """Returns the jitted update and log-probs of a run, see `learner`; `policy` may be abstract."""
    logp = update.make_logp(
        policy.merge,
        banned=policy.tokenizer.banned_ids,
        temperature=run.sampling.temperature,
        chunk=run.batch.vocab_chunk,
        remat=run.batch.remat,
    )
    is_bfloat16 = run.model.param_dtype == "bfloat16"
    step = update.make(
        logp,
        objectives.group_rl(run.loss, run.sampling.max_tokens),
        transform,
        learning_rate=update.schedule(run.optimizer),
        apply=precision.replace if is_bfloat16 else optax.apply_updates,
        whole=policy.whole,
    )
    improve = learner.compile_update(step, policy, shardings)
    return improve, learner.compile_logprobs(logp, policy)


def make_optimizer(
    run: settings.Run, policy: Policy
) -> tuple[optax.GradientTransformation, TrainState]:
    """Returns the optimizer, and the state's shardings; `policy` may be abstract."""
    transform = update.make_optimizer(run.optimizer, run.model.param_dtype)
    state = learner.abstract_state(policy, transform)
    return transform, mesh.shardings(policy.mesh, state)


# ------------------------------------------------------------------------------ reward, validation
def make_scorer(run: settings.Run, policy: Policy) -> scoring.Scorer:
    """Returns the scorer of answers; validation uses only its `correct`."""
    limit, buffer = run.sampling.max_tokens, run.reward.overlong_buffer
    tag = opening(run.reward.format, run.data.template, policy.tokenizer)
    make = functools.partial(
        scoring.make_scorer,
        policy.tokenizer.decode,
        by_length=lambda length: functions.overlong_penalty(length, limit, buffer),
    )
    if run.reward.functions:
        return make(make_judge(run.reward, tag), num_threads=run.reward.concurrency)
    return make(functions.by_rules(run.reward.format, run.reward.format_weight, tag))


def opening(form: str, template: Mapping[str, Any], tokenizer: tokens.Tokenizer) -> str:
    """Returns the part of the format that the prompt already contains: the tag that its template opens."""
    return "" if form == "boxed" else tokenizer.opening(**template)


def make_judge(reward: settings.Reward, opening: str = "") -> functions.SumOfJudges:
    """Returns the judge of `reward.function`; imports nothing yet; `opening` as in `functions.by_rules`."""

    def make(name: str) -> functions.Judge:
        if name == functions.RULES:
            return functions.by_rules(reward.format, reward.format_weight, opening)
        return functions.UserFunction(name, reward.timeout_s, reward.concurrency)

    names = reward.functions
    weights = reward.weights or [1.0] * len(names)
    return functions.SumOfJudges([*map(make, names)], weights, reward.correct_above)
