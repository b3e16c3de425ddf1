"""The run directory: its lock, its settings, and the exported policy."""

import contextlib
import dataclasses
import fcntl
import json
import os
import pathlib
import re
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from vade_jax import atomic, settings
from vade_jax.models.qwen import files, peft
from vade_jax.run import cluster
from vade_jax.run.checks import place
from vade_jax.run.checks.place import EXPORTED
from vade_jax.store import metrics
from vade_jax.trainer import processes
from vade_jax.trainer.policy import Policy
from vade_jax.trainer.progress import Progress

# Of the engine's settings, those that change which answers are learned from.
_OF_ANSWERS = ("max_lag", "options")
_OF_ENGINE = [x.name for x in dataclasses.fields(settings.Engine) if x.name not in _OF_ANSWERS]
# Settings in which the runs of one table may differ: where and how they ran, not what they were asked.
MAY_DIFFER = (
    *("checkpoint", "tensorboard", "wandb", "layout", "perf"),
    *(f"engine.{name}" for name in _OF_ENGINE),
    *("data.num_threads", "reward.timeout_s", "reward.concurrency"),
)
# Of the batch's settings, those that change what is in memory at once, and sums only in their rounding.
_MEMORY = ("prompts_per_microbatch", "answers_per_row", "vocab_chunk", "remat")
# Settings that a resumed run may change: none of them changes what was done so far.
MAY_CHANGE = (
    *(*MAY_DIFFER, "engine", "mesh", "num_steps", "num_epochs", "budget", "eval", "refill"),
    *(f"batch.{name}" for name in _MEMORY),
)
# Directories that are written under another name and then renamed.
REPLACED = (*EXPORTED, "tiny_model")
# What the path of a checkpoint must not have: orbax takes * ? [ ] for patterns and gs:/ for a bucket, and
# tensorstore a backslash for a separator. A message with control characters would not be a line.
_ODD = re.compile(r"[\\*?\[\]\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|gs:/")
LONGEST = 3500  # bytes of a path; a system has 4,096, of which a checkpoint's files need some
_locks: set[int] = set()  # open descriptors, each of which holds the lock of a directory


def _release(descriptor: int) -> None:
    if descriptor in _locks:
        _locks.remove(descriptor)
        os.close(descriptor)


def _release_all() -> None:
    for descriptor in tuple(_locks):
        _release(descriptor)


# A process that a reward function forks would keep the lock, and if the run is killed nobody could go on.
os.register_at_fork(after_in_child=_release_all)


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
            _locks.add(descriptor)
            stack.callback(_release, descriptor)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"{name}={workdir} is another run's, which has not ended: wait for it, stop it, "
                    "or give another directory"
                ) from None
            except OSError as error:
                print(
                    f"WARNING: {name}={workdir}: this file system cannot lock it ({error.strerror}), so nothing "
                    "keeps a second run out: do not start one there"
                )

        processes.on_leader(lock)
        return stack.pop_all()


def make(directory: str | os.PathLike, name: str) -> None:
    """Makes a directory if it is missing; `name` is the setting that named it.

    Raises:
        ValueError: it cannot be made, or has a name that `check_name` refuses.
    """
    check_name(directory, name)
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        reason = "is a file" if os.path.isfile(directory) else f"cannot be made ({error.strerror})"
        raise ValueError(f"{name}={directory} {reason}: give another directory") from error


def check_name(directory: str | os.PathLike, name: str) -> None:
    """Raises ValueError if checkpoints below a directory could not be read again; `name` as in `make`."""
    path = os.path.abspath(directory)
    if odd := _ODD.search(path + "/"):
        raise ValueError(
            f"{name}={path!r} has {odd[0]!r}, and checkpoints below it could not be read again: give a "
            "directory without it"
        )
    if len(path.encode()) > LONGEST:
        raise ValueError(f"{name}={path} is longer than {LONGEST} bytes: give a shorter one")


def open_for(config: Mapping[str, Any], workdir: str, is_done: Callable[[], bool]) -> None:
    """Checks that a directory belongs to a run with these settings, or to no run.

    A run that has not taken a step owns nothing: its directory is reused, and one line says so. The
    processes of a run compare their settings here, because with different ones they would diverge.

    Args:
        config: all settings, in JSON's types.
        workdir: the run directory.
        is_done: whether the run there is done; a finished run keeps its settings.

    Raises:
        ValueError: the run there was started with other values (names them), the directory holds something
            that is not a run, or the processes do not share the directory.
        Disagreement: the processes were given different settings.
    """
    cluster.only_leader_prints()
    wanted = json.loads(json.dumps(config))  # in JSON's types, as in the file
    processes.agree("--config", json.dumps(wanted))
    path = pathlib.Path(workdir) / "config.json"

    def open_in_leader():
        # Of a directory that is no run's, the directories below may be those of runs that write.
        atomic.remove_strays(workdir, REPLACED, deep=path.exists())
        if not path.exists():
            place.check_is_free(workdir)
        elif place.has_a_step(workdir):
            place.check_same(path, wanted, MAY_CHANGE, settings.Run())
        else:
            place.check_is_of_run(path)
            _say_what_changes(path, wanted)
        if not (path.exists() and is_done()):
            place.check_goes_on(workdir)

    processes.on_leader(open_in_leader)


def _say_what_changes(path: pathlib.Path, wanted: Mapping[str, Any]) -> None:
    """Says if other settings take over the directory of a run without a step.

    `begin` writes them.
    """
    found = json.loads(path.read_text())
    other = place.differing(found, wanted, MAY_CHANGE, settings.Run())
    if other:
        print(
            f"{path.parent}: the run there took no step, so this one is to take over ({'; '.join(other)})"
        )


def begin(config: Mapping[str, Any], workdir: str) -> None:
    """Writes the settings of a run, after all checks before its first step have passed.

    Without a checkpoint it begins at step 1, and the metrics of an earlier start are removed: they would be
    taken for those of a run that had saved, if these settings save more often.
    """
    path = pathlib.Path(workdir) / "config.json"

    def write():
        if not place.has_checkpoint(workdir):
            path.with_name(metrics.FILE).unlink(missing_ok=True)
        atomic.write_text(path, json.dumps(config, indent=2) + "\n")

    processes.on_leader(write)
    cluster.wait_until_shared(path)


# ------------------------------------------------------------------------------ the policy
def drop_policy(workdir: str) -> None:
    """Removes the policy that a shorter run exported, because the directory always holds the last policy.

    A link, for example to a larger disk, stays, and the directory it points to is emptied.
    """
    if processes.is_leader():
        for name in EXPORTED:
            path = os.path.join(workdir, name)
            shutil.rmtree(os.path.realpath(path), ignore_errors=True)
            if os.path.islink(path):
                os.makedirs(os.path.realpath(path), exist_ok=True)


def export_policy(policy: Policy, progress: Progress, workdir: str) -> None:
    """Writes the policy as a Hugging Face checkpoint; config.json comes last and marks it as complete.

    With LoRA it writes both the merged weights and the adapter in PEFT's format.
    """
    params, leader = progress.state.params, processes.is_leader()
    directory, adapter = (os.path.join(workdir, name) for name in EXPORTED)
    if policy.adapter is not None and leader:
        peft.save(adapter, policy.shape, policy.adapter, params, os.path.abspath(policy.directory))
    processes.on_leader(lambda: files.copy_tokenizer(policy.directory, directory))
    files.save(directory, policy.shape, policy.whole(params, progress.state.frozen), write=leader)
    processes.barrier()  # the other processes wait until it is written
