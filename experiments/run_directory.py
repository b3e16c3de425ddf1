"""The run directory: whose it is, what is in it, and when it is done."""

import contextlib
import json
import os
import pathlib
import shutil

from ml_collections import ConfigDict

from experiments import assemble, distributed
from vade_jax import atomic
from vade_jax.models.qwen25vl import files
from vade_jax.store import checkpoints
from vade_jax.trainer import loop, processes

STARTED = ("tiny_model", "warm_start", "metrics.jsonl")  # what a run makes first
MAY_CHANGE = (
    *("num_steps", "eval", "checkpoint", "tensorboard", "wandb"),
    *("engine", "layout", "refill", "data.num_threads"),
)


def open_for(c: ConfigDict, workdir: str) -> None:
    """Makes the run directory, or checks that it belongs to this config.

    The first thing that processes do together: with other configs they would drift apart.

    Raises:
        ValueError: the run there was started with other values; names them. Or the processes
            do not share the directory.
        Disagreement: the processes were given different configs.
    """
    distributed.only_leader_prints()
    wanted = json.loads(c.to_json_best_effort())
    processes.agree("--config", json.dumps(wanted))
    path = pathlib.Path(workdir) / "config.json"
    processes.on_leader(lambda: _open(path, wanted))
    distributed.check_shared(path)


def _open(path, wanted):
    if not any(path.with_name(name).exists() for name in STARTED):
        path.unlink(missing_ok=True)  # of a start that failed before it made anything
    claim(path, wanted, MAY_CHANGE)


def claim(path: str | os.PathLike, wanted: dict, may_change: tuple = ()) -> None:
    """Writes what something is made with, or checks that it was made with the same.

    Raises:
        ValueError: the file is unreadable, or has other values but in `may_change`.
    """
    path = pathlib.Path(path)
    if path.exists():
        try:
            found = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is not readable JSON: {error}") from error
        differing = [
            f"{name}: {old!r} there, {new!r} now"
            for name, old, new in _differences(found, wanted)
            if not {name, name.split(".")[0]} & set(may_change)
        ]
        if differing:
            raise ValueError(
                f"{path} is of another config ({'; '.join(differing)}): give another "
                "--workdir or the old values"
            )
    atomic.write_text(path, json.dumps(wanted, indent=2) + "\n")


def is_done(c: ConfigDict, workdir: str) -> bool:
    """Returns whether the last step was taken and its policy exported."""
    exported = os.path.join(workdir, "policy", "config.json")
    if not processes.on_leader(lambda: os.path.exists(exported)):
        return False
    with contextlib.closing(checkpointer(c, workdir)) as saved:
        latest = saved.latest_step()
    return latest is not None and latest >= c.num_steps


def checkpointer(c: ConfigDict, workdir: str) -> checkpoints.Checkpointer:
    """Returns what saves and restores the run."""
    return checkpoints.Checkpointer(
        os.path.join(workdir, "checkpoints"),
        keep=c.checkpoint.keep,
        every=c.checkpoint.every,
    )


def restore(saved: checkpoints.Checkpointer, progress: loop.Progress) -> loop.Progress:
    """Returns the latest checkpoint's progress, or `progress` when there is none."""
    step = saved.latest_step()
    if step is None:
        return progress
    state, selector, counters = saved.restore(step, progress.state, progress.selector)
    print(f"resuming after step {step}")
    return loop.Progress(
        state=state,
        selector=selector,
        step=counters["step"],
        rollouts_total=counters["rollouts_total"],
        tokens_total=counters["tokens_total"],
        seen=frozenset(counters["seen"]),
        skipped_updates=counters.get("skipped_updates", 0),
    )


def drop_policy(workdir: str) -> None:
    """Removes what a shorter run exported: the policy there is always the last one's."""
    if processes.is_leader():
        shutil.rmtree(os.path.join(workdir, "policy"), ignore_errors=True)


def export(policy: assemble.Policy, progress: loop.Progress, workdir: str) -> None:
    """Writes the policy as a Hugging Face checkpoint, config.json last: it means complete."""
    directory = os.path.join(workdir, "policy")
    processes.on_leader(lambda: files.copy_tokenizer(policy.directory, directory))
    params, leader = progress.state.params, processes.is_leader()
    files.save(directory, policy.shape, params, write=leader)
    processes.on_leader(lambda: None)  # the others stay until it is written


def _differences(old, new, prefix=""):
    for name in sorted(set(old) | set(new)):
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{prefix}{name}.")
        elif a != b:
            yield f"{prefix}{name}", a, b
