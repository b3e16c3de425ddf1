"""Trains a policy with group RL: the one entry point, from a laptop to a cluster.

    python -m experiments.train --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo

An existing workdir is resumed. The loop itself is vade_jax/trainer/loop.py.
"""

import contextlib
import dataclasses
import os
import sys
import time

import jax
from ml_collections import ConfigDict

from experiments import (
    assemble,
    checks,
    cli,
    datasets,
    engines,
    errors,
    layout,
    run_directory,
    supervise,
)
from experiments.recorder import Recorder
from experiments.stop_signal import StopSignal
from vade_jax import report
from vade_jax.data import contact_sheet, loading
from vade_jax.recipes.diva import hook
from vade_jax.report import figures, headline
from vade_jax.rollout.engine import EngineFailure
from vade_jax.store import metrics
from vade_jax.trainer import loop, processes


def main(c: ConfigDict, workdir: str) -> None:
    """Runs or resumes the job in `workdir`."""
    start = time.perf_counter()
    with errors.user_errors():
        checks.config(c)
        layout.apply(c)
        run_directory.open_for(c, workdir)
        done = run_directory.is_done(c, workdir)
    if done:
        print(f"{workdir} is done: {c.num_steps} steps. Its summary again:")
    else:
        try:
            train(c, workdir)
        except (loop.NonFiniteLoss, loop.BatchNotFilled, EngineFailure) as error:
            sys.exit(f"error: {error}")
        print(f"finished in {time.perf_counter() - start:.0f} s")
    if processes.is_leader():
        print(headline.summary(metrics.read(workdir), workdir=workdir))


def train(c: ConfigDict, workdir: str) -> None:
    """Builds the parts, restores what is there, runs the loop and exports the policy."""
    stop, threads = StopSignal(), loading.Pool(c.data.num_threads)
    with errors.user_errors():  # data first: the warm start takes minutes
        base = supervise.untrained(c, workdir)
        data = datasets.load(c, base, workdir, threads.map)
        hook.check_texts(c, data.train)
    start = supervise.warm_started(c, base, workdir, stop)
    with errors.user_errors():
        policy = assemble.policy(c, start)
        parts, progress = build(c, policy, data, workdir, threads.map)
    policy = dataclasses.replace(policy, params=None)  # the state's are the only ones
    run_directory.drop_policy(workdir)
    # Closed also when the run fails: what was being saved is written whole.
    closing = contextlib.closing
    with closing(parts.recorder), closing(parts.engine), threads:
        progress = loop.run(
            parts,
            progress,
            num_steps=c.num_steps,
            num_prompts=c.num_prompts,
            key=jax.random.key(c.seed),
            eval_every=c.eval.every,
            refill=assemble.refill(c),
            measure=assemble.measure(c),
            stop=stop,
        )
    is_done = progress.step >= c.num_steps
    if is_done:
        run_directory.export(policy, progress, workdir)
    if processes.is_leader():
        figures.draw(workdir)
        report.at_end(workdir, data.train.source)
        if counts := getattr(parts.vary, "counts", None):
            print(f"variants: {dict(counts)}")
    if not is_done:
        print(f"stopped after step {progress.step}; run again to resume")
        sys.exit(0)


def build(
    c: ConfigDict,
    policy: assemble.Policy,
    data: datasets.Datasets,
    workdir: str,
    over: loading.Map = loading.in_turn,
) -> tuple[loop.Parts, loop.Progress]:
    """Returns the parts of the run and where it starts: after the latest checkpoint, or anew."""
    if processes.is_leader():
        contact_sheet.draw(data.train, os.path.join(workdir, "figures", "samples.png"))
    sampler = assemble.sampler(c)
    state, learn = assemble.learn(c, policy, over)
    saved = run_directory.checkpointer(c, workdir)
    progress = run_directory.restore(
        saved,
        loop.Progress(
            state=state, selector=sampler.init(len(data.train), **data.arrays)
        ),
    )
    hooks = {"advantage": assemble.advantage(c)}
    if c.sampler.name == hook.NAME:
        hooks = hook.parts(c, data.build_prompt)
    parts = loop.Parts(
        items=data.train,
        build_prompt=data.build_prompt,
        sampler=sampler,
        engine=engines.make(c, policy, workdir),
        judge=assemble.judge(c, policy),
        learn=learn,
        validate=assemble.validate(
            c, policy, data.validation, data.build_prompt, data.benchmarks
        ),
        recorder=Recorder(workdir, saved, c.to_dict(), progress.step),
        map=over,
        **hooks,
    )
    return parts, progress


if __name__ == "__main__":
    cli.run(main)
