"""Trains a policy with group RL: the one entry point, from a laptop to a cluster.

    python -m experiments.train --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo

An existing workdir is resumed. The loop itself is vade_jax/trainer/loop.py.
"""

import contextlib
import json
import os
import pathlib
import signal
import sys
import time

import jax
import tqdm
from ml_collections import ConfigDict

from experiments import assemble, checks, cli, errors, make_tiny, supervise
from experiments.recorder import Recorder
from vade_jax.data import contact_sheet
from vade_jax.models.qwen25vl import files
from vade_jax.store import checkpoints, figures, metrics, summary
from vade_jax.trainer import loop

STARTED = ("tiny_model", "warm_start", "metrics.jsonl")  # what a run makes first
MAY_CHANGE = ("num_steps", "eval", "checkpoint", "tensorboard", "engine")


def main(c: ConfigDict, workdir: str) -> None:
    """Runs or resumes the job in `workdir`."""
    start = time.perf_counter()
    with errors.user_errors():
        checks.config(c)
        open_workdir(c, workdir)
    if is_done(c, workdir):
        print(f"{workdir} is done: {c.num_steps} steps. Its summary again:")
    else:
        try:
            train(c, workdir)
        except loop.NonFiniteLoss as error:
            sys.exit(f"error: {error}")
        print(f"finished in {time.perf_counter() - start:.0f} s")
    print(summary.table(metrics.read(workdir), workdir=workdir))


def train(c: ConfigDict, workdir: str) -> None:
    """Builds the parts, restores what is there, runs the loop and exports the policy."""
    base = supervise.base_checkpoint(c, workdir)
    with errors.user_errors():
        policy = assemble.policy(c, base)
        build_prompt = assemble.prompt_builder(c, policy.tokenizer)
        items = assemble.data(c, "train", build_prompt, workdir)
        held_out = assemble.data(c, "validation", build_prompt, workdir)
        checks.data_size(c, len(items))
        contact_sheet.draw(items, os.path.join(workdir, "figures", "samples.png"))
        sampler = assemble.sampler(c)
        state, learn = assemble.learn(c, policy)
        progress = loop.Progress(state=state, selector=sampler.init(len(items)))
        checkpointer = checkpoints.Checkpointer(
            os.path.join(workdir, "checkpoints"),
            keep=c.checkpoint.keep,
            every=c.checkpoint.every,
        )
        progress = restore(checkpointer, progress)
    bar = tqdm.tqdm(
        total=c.num_steps,
        initial=progress.step,
        desc="RL",
        unit=" steps",
        smoothing=0.1,
    )
    recorder = Recorder(
        workdir, checkpointer, c.to_dict(), bar, tensorboard=c.tensorboard
    )
    recorder.metrics.truncate_after(progress.step if progress.step else -1)
    engine = assemble.engine(c, policy)
    parts = loop.Parts(
        items=items,
        build_prompt=build_prompt,
        sampler=sampler,
        engine=engine,
        score=assemble.score(c, policy),
        learn=learn,
        validate=assemble.validate(c, policy, held_out, build_prompt),
        recorder=recorder,
    )
    stop = StopSignal()
    with (
        bar,
        contextlib.closing(checkpointer),
    ):  # also of a run that fails: it is written whole
        progress = loop.run(
            parts,
            progress,
            num_steps=c.num_steps,
            num_prompts=c.num_prompts,
            key=jax.random.key(c.seed),
            eval_every=c.eval.every,
            scale_by_std=c.scale_by_std,
            stop=stop,
        )
    engine.close()
    recorder.metrics.close()
    figures.draw(workdir)
    if stop():
        print(
            f"stopped by a signal after step {progress.step}, saved; run again to resume"
        )
        raise SystemExit(0)
    export(policy, progress, os.path.join(workdir, "policy"))


class StopSignal:
    """True once SIGTERM or Ctrl-C came: the step under way is finished and saved."""

    def __init__(self):
        self._stopped = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)

    def __call__(self) -> bool:
        return self._stopped

    def _stop(self, number, frame):
        if self._stopped:
            raise KeyboardInterrupt  # asked twice
        self._stopped = True


def restore(
    checkpointer: checkpoints.Checkpointer, progress: loop.Progress
) -> loop.Progress:
    """Returns the latest checkpoint's progress, or `progress` when there is none."""
    step = checkpointer.latest_step()
    if step is None:
        return progress
    state, selector, counters = checkpointer.restore(
        step, progress.state, progress.selector
    )
    print(f"resuming after step {step}")
    return loop.Progress(
        state=state,
        selector=selector,
        step=counters["step"],
        rollouts_total=counters["rollouts_total"],
        tokens_total=counters["tokens_total"],
    )


def export(policy: assemble.Policy, progress: loop.Progress, directory: str) -> None:
    """Writes the policy as a Hugging Face checkpoint."""
    make_tiny.add_files(policy.directory, directory)
    files.save(directory, policy.shape, jax.device_get(progress.state.params))


def open_workdir(c: ConfigDict, workdir: str) -> None:
    """Makes the run directory, or checks that it belongs to this config.

    Raises:
        ValueError: the run there was started with other values; names them.
    """
    path = pathlib.Path(workdir) / "config.json"
    wanted = json.loads(c.to_json_best_effort())
    if path.exists() and any(path.with_name(name).exists() for name in STARTED):
        found = json.loads(path.read_text())
        differing = [
            f"{name}: {old!r} there, {new!r} now"
            for name, old, new in _differences(found, wanted)
            if name.split(".")[0] not in MAY_CHANGE
        ]
        if differing:
            raise ValueError(
                f"{workdir} holds a run of another config ({'; '.join(differing)}): "
                "give another --workdir or the old values"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(wanted, indent=2) + "\n")


def is_done(c: ConfigDict, workdir: str) -> bool:
    """Returns whether the last step was taken and its policy exported."""
    if not os.path.exists(os.path.join(workdir, "policy", "config.json")):
        return False
    latest = checkpoints.Checkpointer(
        os.path.join(workdir, "checkpoints")
    ).latest_step()
    return latest is not None and latest >= c.num_steps


def _differences(old, new, prefix=""):
    for name in sorted(set(old) | set(new)):
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{prefix}{name}.")
        elif a != b:
            yield f"{prefix}{name}", a, b


if __name__ == "__main__":
    cli.run(main)
