"""The run directory: its lock, its owner, and the exported policy.

A run owns its directory from just before its first checkpoint, even after it is done. Until then its
state in run.json is "new", there is nothing to lose, and another run may take the directory.
"""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from vade_jax import atomic, settings
from vade_jax.models.qwen import files, peft
from vade_jax.run import cluster
from vade_jax.store import run_file
from vade_jax.trainer import processes
from vade_jax.trainer.policy import Policy
from vade_jax.trainer.progress import Progress

CHECKPOINTS = "checkpoints"
EXPORTED = ("policy", "adapter")  # directories that a finished run leaves
# Settings of the engine that change which answers are learned from.
_OF_ANSWERS = ("max_lag", "options")
_OF_ENGINE = [x.name for x in dataclasses.fields(settings.Engine) if x.name not in _OF_ANSWERS]
# Settings in which the runs of one table may differ: where and how they ran.
MAY_DIFFER = (
    *("checkpoint", "wandb", "layout"),
    *(f"engine.{name}" for name in _OF_ENGINE),
    *("data.num_threads", "reward.timeout_s", "reward.concurrency"),
)
# Settings of the batch that change what is in memory at once, and results only by rounding.
_MEMORY = ("prompts_per_microbatch", "answers_per_row", "vocab_chunk", "remat")
# Settings that a resumed run may change, as they do not affect completed steps.
MAY_CHANGE = (
    *(*MAY_DIFFER, "engine", "mesh", "num_steps", "num_epochs", "budget", "eval", "refill"),
    *(f"batch.{name}" for name in _MEMORY),
)
# What must not change before a run resumes, by the names of its checksums.
_MUST_STAY = {
    "items": "the usable rows of data.train or their order",
    "questions": "the usable rows of data.validation or their order",
    "details": "kinds, choices or columns of these rows",
    "model": "the model of model.checkpoint",
}
# What may change, with a warning. Another version of Pillow may resize pictures to other bytes.
_MAY_CHANGE = {
    "pictures": "pictures of data.train or data.validation, perhaps only in their last bits",
    "verifier": "the version of the rules that judge answers",
}
# What the path of a checkpoint must not contain: orbax reads * ? [ ] as patterns and gs:/ as a bucket, and
# tensorstore a backslash as a separator. Control characters would break messages into lines.
_ODD = re.compile(r"[\\*?\[\]\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|gs:/")


# ------------------------------------------------------------------------------ the lock
def own(workdir: str, name: str = "--workdir") -> contextlib.ExitStack:
    """Locks a directory for this run until the returned context ends or the process dies.

    Some network file systems cannot lock a directory: then a warning says so.

    Args:
        workdir: the run directory, or another directory that a run writes to; created if missing.
        name: the setting that named it, for the message.

    Raises:
        ValueError: another run holds the lock.
    """
    with contextlib.ExitStack() as stack:

        def lock():
            make(workdir, name)
            descriptor = os.open(workdir, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"{name}={workdir} is in use by another run: wait for it, stop it, or give another "
                    "directory"
                ) from None
            except OSError as error:
                print(
                    f"WARNING: {name}={workdir}: this file system cannot lock it ({error.strerror}), so a second "
                    "run is not detected: do not start one there"
                )

        processes.on_leader(lock)
        return stack.pop_all()


def make(directory: str | os.PathLike, name: str) -> None:
    """Makes a directory if it is missing; `name` is the setting that named it.

    Raises:
        ValueError: checkpoints below it could not be read again.
        OSError: it cannot be made.
    """
    if odd := _ODD.search(os.path.abspath(directory) + "/"):
        raise ValueError(
            f"{name}={os.fspath(directory)!r} has {odd[0]!r}, and checkpoints below it could not be read again: "
            "give a directory without it"
        )
    os.makedirs(directory, exist_ok=True)


# ------------------------------------------------------------------------------ ownership
def check_settings(run: settings.Run, workdir: str) -> None:
    """Checks that a directory belongs to a run with these settings, or is free.

    The processes of a run compare their settings here, because with different ones they would diverge.

    Raises:
        ValueError: the processes have different settings, the run there was started with other values (names
            them), or the directory holds something that is not a run.
    """
    cluster.only_leader_prints()
    processes.agree("--config", repr(run))

    def check():
        content = run_file.read(workdir)
        if not content:
            _check_free(workdir)
            return
        state = content.get("state", run_file.RUNNING)  # an earlier version wrote none
        try:  # a field that an earlier version did not have is its default
            there = settings.Run.from_dict(content["settings"]).to_dict()
        except ValueError as error:
            raise ValueError(
                f"{workdir} has a run of another version ({error}): give another --workdir"
            ) from error
        others = "; ".join(run_file.differences(there, run.to_dict(), MAY_CHANGE))
        if others and state != run_file.NEW:
            raise ValueError(
                f"{workdir} is that of a run with other settings ({others}): give another --workdir or the old values"
            )
        steps = pathlib.Path(workdir, CHECKPOINTS).glob("[0-9]*")
        if state == run_file.DONE and not (any(steps) or is_done(run, workdir)):
            raise ValueError(
                f"{workdir} has a finished run without checkpoints, so it cannot continue: put its checkpoints/ "
                "back, or give another --workdir"
            )
        if others:
            print(f"{workdir}: the run there saved no step, so this one takes over ({others})")

    processes.on_leader(check)


def _check_free(workdir: str) -> None:
    """Raises ValueError if a new run would replace files that no run made, such as those of its model."""
    for name in (*EXPORTED, CHECKPOINTS):
        path = pathlib.Path(workdir, name)
        if path.is_file() or (path.is_dir() and any(path.iterdir())):
            raise ValueError(
                f"{path} exists and is not from a run, which would replace it: give another --workdir"
            )


def is_done(run: settings.Run, workdir: str) -> bool:
    """Returns whether a run of this length, or a longer one, has exported its policy; touches no device."""
    content = run_file.read(workdir)
    if content.get("state") != run_file.DONE:
        return False
    then, now = content["settings"], run.to_dict()
    is_as_long = all(then[name] == now[name] for name in ("num_steps", "num_epochs", "budget"))
    return is_as_long or (run.num_steps <= content["step"] and not run.num_epochs)


def begin(run: settings.Run, workdir: str, identity: Mapping[str, Any], num_items: int) -> None:
    """Compares the data and the model with those that the run began with, and writes run.json.

    Args:
        run: the settings.
        workdir: the run directory, already checked by `check_settings`.
        identity: checksums of the data and the model, and the version of the rules that judge.
        num_items: training items.

    Raises:
        ValueError: the run began with other items or another model; warns about other pictures and rules.
    """

    def write():
        earlier, state = run_file.read(workdir), run_file.NEW
        if earlier.get("state", state) != run_file.NEW:
            began, state = earlier["identity"], run_file.RUNNING
            changed = {name for name, value in identity.items() if began.get(name) != value}
            if others := ", ".join(what for name, what in _MUST_STAY.items() if name in changed):
                raise ValueError(
                    f"since this run began, this has changed: {others}: give what it began with, or another --workdir"
                )
            if others := ", ".join(what for name, what in _MAY_CHANGE.items() if name in changed):
                print(f"WARNING: since this run began, this has changed: {others}: it continues")
        for directory in (workdir, os.path.join(workdir, "rollouts")):
            atomic.remove_strays(directory)
        content = {"state": state, "num_items": num_items, "identity": dict(identity)}
        run_file.write(workdir, content | {"settings": run.to_dict()})

    processes.on_leader(write)
    cluster.wait_until_shared(pathlib.Path(workdir, run_file.FILE))


# ------------------------------------------------------------------------------ the policy
def export_policy(policy: Policy, progress: Progress, workdir: str) -> None:
    """Writes the policy as a Hugging Face checkpoint, and marks the run as done.

    With LoRA it writes both the merged weights and the adapter in PEFT's format.
    """
    params, leader = progress.state.params, processes.is_leader()
    directory, adapter = (os.path.join(workdir, name) for name in EXPORTED)
    if policy.adapter is not None and leader:
        peft.save(adapter, policy.shape, policy.adapter, params, os.path.abspath(policy.directory))
    processes.on_leader(lambda: files.copy_tokenizer(policy.directory, directory))
    files.save(directory, policy.shape, policy.whole(params, progress.state.frozen), write=leader)
    if leader:
        run_file.change(workdir, state=run_file.DONE, step=progress.step)
    processes.barrier()  # the other processes wait until it is written
