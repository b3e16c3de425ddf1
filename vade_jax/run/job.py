"""A training run from settings to an exported policy: what `python -m experiments.train` does.

    from vade_jax import run, settings
    run.train(settings.Run.from_dict({...}), "runs/mine")

The loop itself is trainer/loop.py.
"""

import contextlib
import dataclasses
import functools
import os
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from vade_jax import fields, rewards, settings
from vade_jax.data import loading
from vade_jax.run import build, checks, compiled, datasets, directory, gpus, states
from vade_jax.run.hooks import Hooks, Vary
from vade_jax.run.recorder import RunRecorder, checkpointer, restore
from vade_jax.store import run_file
from vade_jax.trainer import choosing, processes, scoring
from vade_jax.trainer.collect import Collector
from vade_jax.trainer.loop import Loop
from vade_jax.trainer.policy import Policy
from vade_jax.trainer.progress import Progress
from vade_jax.trainer.validation import Validate

NO_HOOKS = Hooks()


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
        workdir: the run directory; the run writes nowhere else.
        hooks: reports, benchmarks and variants, see `hooks.Hooks`.
        stop: called after each step, and between the batches of a pass over all items; when it returns True,
            the run saves and ends.

    Returns:
        Whether all steps are done.

    Raises:
        UserError: a mistake in the settings or files, found before the first step.
        scoring.NotFinite: a number of a step is not finite. This and the next three come from `Loop.run`.
        EngineFailure: the engine failed.
        RewardFailure: a reward function failed.
        RejectedItem, OSError: a file of the data was there at the start and can no longer be read.
    """
    with opened(run, workdir, hooks) as (run, workdir):
        if processes.on_leader(lambda: is_done(run, workdir)):
            print(f"{workdir} is done already")
            return True
        compiled.keep(run.perf)
        return _train(run, workdir, hooks, stop)


@contextlib.contextmanager
def opened(
    run: settings.Run, workdir: str, hooks: Hooks = NO_HOOKS
) -> Iterator[tuple[settings.Run, str]]:
    """Yields the run, with names pinned to commits, and its directory, which stays locked meanwhile.

    Raises:
        UserError: a mistake in the settings, or the directory is another run's.
    """
    # Absolute: a hook may change the current directory.
    workdir = os.path.abspath(fields.at_home("workdir", workdir))
    with contextlib.ExitStack() as owned:
        with checks.user_errors():
            checks.check(run, hooks)
            gpus.take(run.layout)
            owned.enter_context(directory.own(workdir))
            run = fields.replaced(run, directory.pinned(run, workdir))
            directory.check_settings(run, workdir, lambda: is_done(run, workdir))
        yield run, workdir


def _train(run: settings.Run, workdir: str, hooks: Hooks, stop: Callable[[], bool]) -> bool:
    """Checks, prepares, trains and exports, in that order; cheap checks come first."""
    given = run
    with contextlib.ExitStack() as open_parts:
        with checks.user_errors():
            threads = open_parts.enter_context(loading.Threads(run.data.num_threads))
            checkpoint = build.checkpoint_of(run, workdir)
            checks.check_model(run, checkpoint)
            data = build.load_data(run, checkpoint, workdir, threads.stream)
            run = checks.check_data(run, data)
            processes.on_leader(lambda: checks.check_reward(run, data))
            benchmarks, vary = _of_hooks(run, data, hooks)
            directory.begin(given, workdir, _identity(run, data), len(data.train))
            policy = build.load_policy(run, checkpoint)
            if hooks.page is not None and processes.is_leader():
                hooks.page.at_start(workdir, data.train)
            loop, progress = prepare(run, policy, data, workdir, threads.map, benchmarks, vary)
        # Closed also if the run fails, so that a save under way is completed.
        open_parts.callback(loop.collect.engine.close)
        open_parts.callback(loop.recorder.close)
        _tell_of_lag(run, progress, loop)
        # From here on the state has the only copy of the weights: the first update deletes the policy's.
        policy = dataclasses.replace(policy, params=None, base=None)
        progress = loop.run(progress, stop)
    return _finish(run, policy, data, progress, workdir, hooks, vary)


def _finish(
    run: settings.Run,
    policy: Policy,
    data: datasets.Datasets,
    progress: Progress,
    workdir: str,
    hooks: Hooks,
    vary: Vary | None,
) -> bool:
    """Completes the page and, if all steps are done, exports the policy; returns whether they are."""
    schedule = build.make_schedule(run, len(data.train))
    done = schedule.is_over(progress.step, progress.rollouts_total)
    with contextlib.ExitStack() as last:
        if done:
            # Last, because it marks the run as done: whatever is killed before it is made again. A page that
            # fails would fail again, so the policy does not depend on it.
            last.callback(directory.export_policy, policy, progress, workdir)
        if processes.is_leader() and hooks.page is not None:
            hooks.page.at_end(workdir, data.train.source)
        if processes.is_leader() and vary is not None:
            print(f"variants: {dict(vary.counts)}")
    if not done:
        print(f"stopped after step {progress.step}; run again to resume")
    return done


def _of_hooks(
    run: settings.Run, data: datasets.Datasets, hooks: Hooks
) -> tuple[Sequence[Validate], Vary | None]:
    """Returns the validations of `eval.benchmarks`, and what makes variants if the selector asks for them."""
    benchmarks, vary = [], None
    if run.eval.benchmarks:
        assert hooks.benchmarks is not None
        benchmarks = hooks.benchmarks.make(run.eval, run.data, data.build_prompt.tokenizer)
    if build.make_selector(run).needs.variants:
        assert hooks.variants is not None
        vary = hooks.variants.make(run, data.train, data.build_prompt)
    return benchmarks, vary


def _identity(run: settings.Run, data: datasets.Datasets) -> dict[str, int]:
    """Returns what tells a resumed run that its data, its model, or what judges, has changed."""
    rules = {"verifier": rewards.VERSION} if run.reward.has_rules else {}
    return {**data.identity(), "model": build.identity(run.model.checkpoint), **rules}


def _tell_of_lag(run: settings.Run, progress: Progress, loop: Loop) -> None:
    """Prints what a user might not expect of `engine.max_lag`."""
    if run.engine.max_lag and not loop.overlaps:
        print(
            f"engine.max_lag={run.engine.max_lag}: answering and learning take turns here; only vLLM on GPUs of "
            "its own answers meanwhile, in a run of one process"
        )


def prepare(
    run: settings.Run,
    policy: Policy,
    data: datasets.Datasets,
    workdir: str,
    map: loading.Map = loading.in_turn,
    benchmarks: Sequence[Validate] = (),
    vary: Vary | None = None,
) -> tuple[Loop, Progress]:
    """Builds the loop and all its parts, and restores the latest checkpoint; `map` maps over items.

    The caller closes the loop's engine and recorder.
    """
    selector = build.make_selector(run)
    pool = choosing.Pool(data.train, data.build_prompt, map, vary.expand if vary else None)
    usual = functools.partial(scoring.usual_advantage, scale_by_std=run.scale_by_std)
    with contextlib.ExitStack() as if_failed:  # closes what is open if a later part cannot be made
        saved = checkpointer(run.checkpoint, workdir)
        if_failed.callback(saved.close)
        resumes = saved.latest_step() is not None
        values = states.of_items(run, selector, policy, data, map, resumes=resumes)
        state, learn = build.make_learner(run, policy, map, resumes=resumes)
        begun = Progress(
            state, selector.init(len(data.train), **values), np.zeros(len(data.train), np.int32)
        )
        progress = restore(saved, begun, pool)
        held_out = build.make_validation(run, policy, data, map)  # before vLLM takes the GPUs
        engine = build.make_engine(run, policy, workdir)
        if_failed.callback(engine.close)
        recorder = RunRecorder(workdir, saved, run.to_dict(), progress.step)
        if_failed.callback(recorder.close)
        collect = Collector(
            selector=selector,
            pool=pool,
            engine=engine,
            score=build.make_scorer(run, policy),
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
            schedule=build.make_schedule(run, len(data.train)),
            lag=run.engine.max_lag,
            overlaps=gpus.overlaps(run.engine, run.layout),
            engine_devices=gpus.engine_devices(run.engine, run.layout),
            weights=policy.weights,
        )
        if_failed.pop_all()
    return loop, progress


# ------------------------------------------------------------------------------ the end
def is_done(run: settings.Run, workdir: str) -> bool:
    """Returns whether the run took its last step and exported the policy; touches no device."""
    content = run_file.read(workdir)
    if content.get("state") != run_file.DONE:
        return False
    num_items = content["num_items"]
    run = run.with_items(num_items, build.make_selector(run).needs.places)
    schedule = build.make_schedule(run, num_items)
    return schedule.is_over(content["step"], content["rollouts_total"])
