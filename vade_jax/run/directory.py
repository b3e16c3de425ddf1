"""The run directory: whose it is, what is in it, and when it is done."""

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vade_jax import atomic, settings
from vade_jax.models.qwen25vl import files
from vade_jax.run import cluster
from vade_jax.run.build import Policy
from vade_jax.store import checkpoints
from vade_jax.trainer import loop, processes

STARTED = ("tiny_model", "warm_start", "metrics.jsonl")  # what a run makes first
# What a resumed run may have other values of: none of it changes what was done so far.
MAY_CHANGE = (
    *("num_steps", "eval", "checkpoint", "tensorboard", "wandb"),
    *("engine", "layout", "refill", "data.num_threads"),
)


def open_for(run: settings.Run, workdir: str) -> None:
    """Makes the run directory, or checks that it belongs to a run with these settings.

    The first thing that processes do together: with other settings they would drift apart.

    Raises:
        ValueError: the run there was started with other values; names them. Or the processes
            do not share the directory.
        Disagreement: the processes were given different settings.
    """
    cluster.only_leader_prints()
    wanted = json.loads(json.dumps(run.to_dict()))  # as the file will have it
    processes.agree("--config", json.dumps(wanted))
    path = pathlib.Path(workdir) / "config.json"

    def open_in_leader():
        if not any(path.with_name(name).exists() for name in STARTED):
            path.unlink(missing_ok=True)  # of a start that failed before it made anything
        claim(path, wanted, MAY_CHANGE)

    processes.on_leader(open_in_leader)
    cluster.check_shared(path)


def claim(
    path: str | os.PathLike, wanted: Mapping[str, Any], may_change: Sequence[str] = ()
) -> None:
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


def _differences(
    old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = ""
) -> Iterator[tuple[str, Any, Any]]:
    """Yields the dotted name and both values of every field that differs."""
    for name in sorted(set(old) | set(new)):
        a, b = old.get(name), new.get(name)
        if isinstance(a, dict) and isinstance(b, dict):
            yield from _differences(a, b, f"{prefix}{name}.")
        elif a != b:
            yield f"{prefix}{name}", a, b


# ------------------------------------------------------------------------------ checkpoints
def checkpointer(run: settings.Run, workdir: str) -> checkpoints.Checkpointer:
    """Returns what saves and restores the run."""
    path = os.path.join(workdir, "checkpoints")
    return checkpoints.Checkpointer(path, keep=run.checkpoint.keep, every=run.checkpoint.every)


def restore(saved: checkpoints.Checkpointer, progress: loop.Progress) -> loop.Progress:
    """Returns the latest checkpoint's progress, or `progress` when there is none."""
    step = saved.latest_step()
    if step is None:
        return progress
    state, selector, counters = saved.restore(step, progress.state, progress.selector)
    print(f"resuming after step {step}")
    del counters["seed"]  # the rest is what `RunRecorder.save` writes
    seen = frozenset(counters.pop("seen"))
    return loop.Progress(state=state, selector=selector, seen=seen, **counters)


def is_done(run: settings.Run, workdir: str) -> bool:
    """Returns whether the last step was taken and its policy exported."""
    exported = os.path.join(workdir, "policy", "config.json")
    if not processes.on_leader(lambda: os.path.exists(exported)):
        return False
    with contextlib.closing(checkpointer(run, workdir)) as saved:
        latest = saved.latest_step()
    return latest is not None and latest >= run.num_steps


# ------------------------------------------------------------------------------ the policy
def drop_policy(workdir: str) -> None:
    """Removes what a shorter run exported: the policy there is always the last one's."""
    if processes.is_leader():
        shutil.rmtree(os.path.join(workdir, "policy"), ignore_errors=True)


def export_policy(policy: Policy, progress: loop.Progress, workdir: str) -> None:
    """Writes the policy as a Hugging Face checkpoint, config.json last: it means complete."""
    directory = os.path.join(workdir, "policy")
    processes.on_leader(lambda: files.copy_tokenizer(policy.directory, directory))
    leader = processes.is_leader()
    files.save(directory, policy.shape, progress.state.params, write=leader)
    processes.on_leader(lambda: None)  # the others stay until it is written
