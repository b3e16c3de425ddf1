"""A training run from settings to an exported policy: what `python -m experiments.train` does.

    from vade_jax import run, settings
    run.train(settings.Run.from_dict({...}), "runs/mine")

The loop itself is trainer/loop.py.
"""

import contextlib
import dataclasses
import functools
import os
import types
from collections.abc import Callable, Mapping, Sequence

import jax
import numpy as np

from vade_jax import rewards, samplers, settings
from vade_jax.data import loading
from vade_jax.models.qwen import files
from vade_jax.rollout.engine import Sampling
from vade_jax.run import build, checks, compiled, datasets, directory, engines, gpus, states
from vade_jax.run.hooks import NO_HOOKS, Hooks, Vary
from vade_jax.run.recorder import RunRecorder
from vade_jax.trainer import choosing, processes, scoring, validation
from vade_jax.trainer.collect import Collector
from vade_jax.trainer.loop import Loop
from vade_jax.trainer.policy import Policy
from vade_jax.trainer.progress import Progress, Schedule
from vade_jax.trainer.validation import Validate


def train(
    run: settings.Run,
    workdir: str,
    *,
    hooks: Hooks = NO_HOOKS,
    stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Runs or resumes the job in `workdir`.

    Args:
        run: the settings; a resumed run may change few of them (`directory.MAY_CHANGE`).
        workdir: the run directory, locked meanwhile; the run writes nowhere else.
        hooks: reports, benchmarks and variants, see `hooks.Hooks`.
        stop: called after each step; when it returns True, the run saves and ends.

    Returns:
        Whether all steps are done.

    Raises:
        UserError: a mistake in the settings or files, found before the first step.
        scoring.NotFinite: a number of a step is not finite. This and the next three come from `Loop.run`.
        EngineFailure: the engine failed.
        RewardFailure: a reward function failed.
        RejectedItem, OSError: a file of the data was there at the start and can no longer be read.
    """
    # Absolute: a hook may change the current directory.
    workdir = os.path.abspath(os.path.expanduser(workdir))
    with contextlib.ExitStack() as owned:
        with checks.user_errors():
            selector = checks.check(run, hooks)
            gpus.take(run.layout)
            owned.enter_context(directory.own(workdir))
            directory.check_settings(run, workdir)
        if processes.on_leader(lambda: directory.is_done(run, workdir)):
            print(f"{workdir} is done already")
            return True
        compiled.keep()
        return _train(run, selector, workdir, hooks, stop)


def _train(
    run: settings.Run,
    selector: samplers.Sampler,
    workdir: str,
    hooks: Hooks,
    stop: Callable[[], bool],
) -> bool:
    """Checks, prepares, trains and exports, in that order; cheap checks come first."""
    benchmarks, vary = [], None
    with contextlib.ExitStack() as open_parts:
        with checks.user_errors():
            threads = open_parts.enter_context(loading.threads(run.data.num_threads))
            checkpoint = build.checkpoint_of(run, workdir)
            checks.check_model(run, checkpoint)
            data = datasets.load(
                run.data,
                checkpoint,
                workdir,
                threads,
                seed=run.seed,
                reward=run.reward,
                arrays=run.selector.arrays,
            )
            sized = checks.check_data(run, selector, data)
            processes.on_leader(lambda: checks.check_reward(run, data))
            if hooks.benchmarks is not None and run.eval.benchmarks:
                tokenizer = data.build_prompt.tokenizer
                benchmarks = hooks.benchmarks.make(run.eval, run.data, tokenizer)
            if hooks.variants is not None and selector.needs.variants:
                vary = hooks.variants.make(sized, data.train, data.build_prompt)
            directory.begin(run, workdir, _identity(run, data, checkpoint), len(data.train))
            policy = build.load_policy(run, checkpoint)
            if hooks.page is not None and processes.is_leader():
                hooks.page.at_start(workdir, data.train)
            recorder = RunRecorder(workdir, sized.to_dict())
            # Closed also if the run fails, so that a save under way is completed.
            open_parts.callback(recorder.close)
            items = sized, selector, policy, data
            values = states.for_selector(*items, threads, resumes=recorder.resumes)
            loop, progress = prepare(
                *items, recorder, threads, values=values, benchmarks=benchmarks, vary=vary
            )
        open_parts.callback(loop.collect.engine.close)
        # From here on the state has the only copy of the weights: the first update deletes the policy's.
        policy = dataclasses.replace(policy, params=None, base=None)
        progress = loop.run(progress, stop)
    done = loop.schedule.is_over(progress.step, progress.rollouts_total)
    with contextlib.ExitStack() as last:
        if done:
            # Last, because it marks the run as done: what a kill left unfinished is made again. A page that
            # fails would fail again, so the policy does not depend on it.
            last.callback(directory.export_policy, policy, progress, workdir)
        if processes.is_leader() and hooks.page is not None:
            hooks.page.at_end(workdir, data.train.source)
        if vary is not None:
            print(f"variants: {dict(vary.counts)}")
    if not done:
        print(f"stopped after step {progress.step}; run again to resume")
    return done


def _identity(run: settings.Run, data: datasets.Datasets, checkpoint: str) -> dict[str, int]:
    """Returns what shows a resumed run whether its data, its model or its judge has changed."""
    identity = data.identity() | {"model": 0}  # a preset's is the same whenever its settings are
    if run.model.checkpoint:
        identity["model"] = processes.on_leader(lambda: files.identity(checkpoint))
    if run.reward.has_rules:
        identity["verifier"] = rewards.VERSION
    return identity


def prepare(
    run: settings.Run,
    selector: samplers.Sampler,
    policy: Policy,
    data: datasets.Datasets,
    recorder: RunRecorder,
    map: loading.Map = map,
    *,
    values: Mapping[str, np.ndarray] = types.MappingProxyType({}),
    benchmarks: Sequence[Validate] = (),
    vary: Vary | None = None,
) -> tuple[Loop, Progress]:
    """Builds the loop and all its parts, and restores the latest checkpoint.

    The caller closes the loop's engine and the recorder. `map` maps over items, and `values` has the arrays
    of all items that the selector needs.
    """
    num_items = len(data.train)
    state, learn = build.make_learner(run, policy, map, resumes=recorder.resumes)
    pool = choosing.Pool(data.train, data.build_prompt, map, vary.expand if vary else None)
    begun = Progress(state, selector.init(num_items, **values), np.zeros(num_items, np.int32))
    progress = recorder.restore(begun, pool)
    score = build.make_scorer(run, policy, data.build_prompt.opening)
    held_out = validation.of_items(  # before vLLM takes the GPUs
        "validation",
        data.validation,
        data.build_prompt,
        score,
        num_samples=run.eval.num_samples,
        sampling=Sampling(temperature=run.eval.temperature, max_tokens=run.eval.max_tokens),
        map=map,
    )
    schedule = Schedule(
        num_steps=run.num_steps,
        eval_every=run.eval.every,
        max_rollouts=run.max_rollouts,
        measure=run.resolved_measure,
        measures_first=selector.needs.passes == "first",
        num_items=num_items,
    )
    usual = functools.partial(scoring.usual_advantage, scale_by_std=run.scale_by_std)
    num_apart = gpus.num_apart(run.engine, run.layout)
    collect = Collector(
        selector=selector,
        pool=pool,
        engine=engines.make(run, policy, recorder.workdir),
        score=score,
        key=jax.random.key(run.seed),
        num_prompts=run.num_prompts,
        advantage=vary.advantage if vary else usual,
        refill=run.refill,
    )
    loop = Loop(
        collect=collect,
        learn=learn,
        validate=[held_out, *benchmarks],
        recorder=recorder,
        schedule=schedule,
        lag=run.engine.max_lag,
        # Several processes communicate in both, so one comes after the other.
        overlaps=num_apart > 0 and not run.layout.sleep and not processes.several(),
        engine_devices=num_apart,
        whole=policy.whole,
    )
    return loop, progress
