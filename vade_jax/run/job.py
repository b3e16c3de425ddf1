"""A training run from settings to an exported policy: what `python -m experiments.train` does.

    from vade_jax import run, settings
    run.train(settings.Run.from_dict({...}), "runs/mine")

The loop itself is trainer/loop.py.
"""

import contextlib
import dataclasses
import functools
import os
import time
from collections.abc import Callable, Iterator, Sequence

import jax
import numpy as np

from vade_jax import fields, rewards, samplers, settings
from vade_jax.data import loading
from vade_jax.rollout.engine import Engine
from vade_jax.run import (
    build,
    checks,
    cluster,
    commits,
    compiled,
    datasets,
    directory,
    states,
    warm_start,
)
from vade_jax.run.hooks import Hooks, Vary
from vade_jax.run.recorder import RunRecorder, checkpointer, restore
from vade_jax.store import metrics
from vade_jax.trainer import choosing, passes, processes, scoring
from vade_jax.trainer.loop import Loop
from vade_jax.trainer.policy import Policy
from vade_jax.trainer.progress import Progress
from vade_jax.trainer.progress import is_over as ends_after
from vade_jax.trainer.scoring import Advantage
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
        stop: called after each step, of the warm start too, and between the batches of a pass over all
            items; when it returns True, the run saves and ends.

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
    with checks.user_errors():
        checks.check(run, hooks)
        cluster.take_gpus(run.layout)
        owned = directory.own(workdir)
    with owned:
        with checks.user_errors():
            run = fields.replaced(run, commits.pin(commits.names(run), workdir))
            directory.open_for(run.to_dict(), workdir, lambda: is_done(run, workdir))
        yield run, workdir


def _train(run: settings.Run, workdir: str, hooks: Hooks, stop: Callable[[], bool]) -> bool:
    """Checks, prepares, trains and exports, in that order; cheap checks come first."""
    with checks.user_errors():
        if processes.on_leader(lambda: is_done(run, workdir)):
            print(f"{workdir} is done already")
            return True
    compiled.keep(run.perf, workdir)
    given = run.to_dict()
    with loading.Threads(run.data.num_threads) as threads:
        with checks.user_errors():  # data first: the warm start takes minutes
            untrained = warm_start.untrained(run, workdir)
            checks.model.check_model(run, untrained)
            data = build.load_data(run, untrained, workdir, threads.stream)
            checks.data.check_data(run, data)
            run = run.with_items(len(data.train), checks.selector.make(run).needs.places)
            processes.on_leader(lambda: checks.data.check_reward(run, data))
            selector = checks.selector.make(run)
            # Rejects arrays that the selector does not accept.
            selector.init(len(data.train), **data.arrays)
            benchmarks = _benchmarks(run, data, hooks)
            variants = _variants(run, data, hooks) if selector.needs.variants else None
            directory.begin(given, workdir)
        checkpoint = warm_start.warm_started(run, untrained, workdir, stop, data.train)
        if checkpoint is None:
            return False
        with checks.user_errors():
            policy = build.load_policy(run, checkpoint)
            if hooks.page is not None and processes.is_leader():
                hooks.page.at_start(workdir, data.train)
            prepared = prepare(run, policy, data, workdir, threads.map, benchmarks, variants)
        _tell_of_lag(run, prepared.progress, len(data.train))
        # From here on the state has the only copy of the weights: the first update deletes the policy's.
        policy = dataclasses.replace(policy, params=None, base=None)
        directory.drop_policy(workdir)
        # Closed also if the run fails, so that a save under way is completed.
        with contextlib.closing(prepared.recorder), contextlib.closing(prepared.engine):
            progress = prepared.loop.run(prepared.progress, stop)
    return _finish(run, policy, data, progress, workdir, hooks, variants)


def _tell_of_lag(run: settings.Run, begun: Progress, num_items: int) -> None:
    """Prints what a user might not expect of `engine.max_lag`."""
    if run.engine.max_lag and not checks.machine.overlaps(run.engine, run.layout):
        print(
            f"engine.max_lag={run.engine.max_lag}: answering and learning take turns here; only vLLM on GPUs of "
            "its own answers meanwhile, in a run of one process"
        )
    ends = is_over(run, begun.made, begun.rollouts_made, num_items)
    if begun.step and run.engine.max_lag and not begun.waiting and not ends:
        print("WARNING: no batch waits, as one should: the next gets newer weights")


def _finish(
    run: settings.Run,
    policy: Policy,
    data: datasets.Datasets,
    progress: Progress,
    workdir: str,
    hooks: Hooks,
    variants: "VariantParts | None",
) -> bool:
    """Completes the page and, if all steps are done, exports the policy; returns whether they are."""
    done = is_over(run, progress.step, progress.rollouts_total, len(data.train))
    with contextlib.ExitStack() as last:
        if done:
            # Last, because it marks the run as done: whatever is killed before it is made again. A page that
            # fails would fail again, so the policy does not depend on it.
            last.callback(directory.export_policy, policy, progress, workdir)
        if processes.is_leader():
            if hooks.page is not None:
                hooks.page.at_end(workdir, data.train.source)
            if variants is not None:
                print(f"variants: {dict(variants.vary.counts)}")
    if not done:
        print(f"stopped after step {progress.step}; run again to resume")
    return done


def _benchmarks(run: settings.Run, data: datasets.Datasets, hooks: Hooks) -> list[Validate]:
    """Returns the validations of `eval.benchmarks`; `checks.check` made sure that there is a hook."""
    if not run.eval.benchmarks:
        return []
    assert hooks.benchmarks is not None
    return hooks.benchmarks.make(run.eval, run.data, data.build_prompt.tokenizer)


@dataclasses.dataclass(frozen=True)
class VariantParts:
    """The parts of a run that a selector with variants adds."""

    vary: Vary
    advantage: Advantage


def _variants(run: settings.Run, data: datasets.Datasets, hooks: Hooks) -> VariantParts:
    assert hooks.variants is not None
    hooks.variants.check_texts(run, data.train)
    vary = hooks.variants.vary(run, data.build_prompt)
    return VariantParts(vary, hooks.variants.advantage(run))


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A run that is ready to train. The caller closes recorder and engine."""

    progress: Progress  # from the latest checkpoint, or the beginning
    loop: Loop
    recorder: RunRecorder
    engine: Engine


def prepare(
    run: settings.Run,
    policy: Policy,
    data: datasets.Datasets,
    workdir: str,
    map: loading.Map = loading.in_turn,
    benchmarks: Sequence[Validate] = (),
    variants: VariantParts | None = None,
) -> Prepared:
    """Builds all parts of the run and restores the latest checkpoint; `map` maps over items."""
    selector, items = checks.selector.make(run), _identity(run, data)
    expand = variants.vary.expand if variants else None
    pool = choosing.Pool(data.train, data.build_prompt, map, expand)
    with contextlib.ExitStack() as if_failed:  # closes what is open if a later part cannot be made
        closing = lambda part: if_failed.enter_context(contextlib.closing(part))
        saved = closing(checkpointer(run.checkpoint, workdir))
        resumes = saved.latest_step() is not None
        values = _values(run, selector, policy, data, map, resumes=resumes)
        state, learn = build.make_learner(run, policy, map, resumes=resumes)
        posterior = selector.init(len(data.train), **values)
        begun = Progress(state, posterior, np.zeros(len(data.train), np.int32))
        progress = restore(saved, begun, items, pool)
        held_out = build.make_validation(run, policy, data, map)  # before vLLM takes the GPUs
        engine = closing(build.make_engine(run, policy, workdir))
        recorder = closing(RunRecorder(workdir, saved, run.to_dict(), progress.step, items))
        usual = functools.partial(scoring.usual_advantage, scale_by_std=run.scale_by_std)
        whole = Loop(
            selector=selector,
            pool=pool,
            engine=engine,
            score=build.make_scorer(run, policy),
            learn=learn,
            validate=[held_out, *benchmarks],
            recorder=recorder,
            key=jax.random.key(run.seed),
            num_prompts=run.num_prompts,
            num_steps=run.num_steps,
            eval_every=run.eval.every,
            max_rollouts=run.max_rollouts,
            advantage=variants.advantage if variants else usual,
            refill=run.refill,
            measure=run.resolved_measure,
            lag=run.engine.max_lag,
            overlaps=checks.machine.overlaps(run.engine, run.layout),
            engine_devices=checks.machine.engine_devices(run.engine, run.layout),
            weights=policy.weights,
        )
        if_failed.pop_all()
    return Prepared(progress, whole, recorder, engine)


def _identity(run: settings.Run, data: datasets.Datasets) -> dict[str, int]:
    """Returns what tells a resumed run that its data, or what judges them, has changed."""
    items = data.identity()
    return items | {"verifier": rewards.VERSION} if run.reward.has_rules else items


def _values(
    run: settings.Run,
    selector: samplers.Sampler,
    policy: Policy,
    data: datasets.Datasets,
    map: loading.Map,
    *,
    resumes: bool,
) -> dict[str, np.ndarray]:
    """Returns the values of every item for the selector: those of the data, and the policy's states."""
    missing = [name for name in selector.needs.named("states") if name not in data.arrays]
    if not missing:
        return dict(data.arrays)
    if resumes:  # the checkpoint has them
        found = np.zeros((len(data.train), states.NUM_FEATURES), np.float32)
    else:
        start = time.perf_counter()
        found = states.of_prompts(
            policy,
            data,
            prompts_per_call=run.engine.prompts_per_call,
            length_multiple=run.data.length_multiple,
            map=map,
        )
        if processes.is_leader():
            print(f"states of {len(found):,} prompts: {time.perf_counter() - start:.1f} s")
    return {**data.arrays, **dict.fromkeys(missing, found)}


# ------------------------------------------------------------------------------ the end
def is_done(run: settings.Run, workdir: str) -> bool:
    """Returns whether the run took its last step and exported the policy; touches no device."""
    made = [os.path.join(workdir, name) for name in ("policy/config.json", metrics.FILE)]
    records = metrics.read(workdir) if all(map(os.path.exists, made)) else []
    if not records:
        return False
    step, total = records[-1]["step"], records[-1]["vade/rollouts_total"]
    if not step:
        return False
    # The number of items is computed from the records: reading the data would take too long here.
    places = checks.selector.make(run).needs.places
    num_items = metrics.num_items(records, run.num_prompts, places)
    return is_over(run.with_items(num_items, places) if num_items else run, step, total, num_items)


def is_over(run: settings.Run, step: int, rollouts_total: int, num_items: int) -> bool:
    """Returns whether a run over `num_items` items ends after a step: see `progress.is_over`."""
    return ends_after(
        step,
        rollouts_total,
        num_steps=run.num_steps,
        max_rollouts=run.max_rollouts,
        next_pass=passes.Passes(run.resolved_measure, checks.selector.make(run), num_items).cost(
            step
        ),
    )
