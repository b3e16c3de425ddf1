"""The run directory: its lock, whose it is, and the exported policy."""

import contextlib
import dataclasses
import fcntl
import os
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any

from vade_jax import atomic, settings
from vade_jax.data import hub
from vade_jax.models.qwen import files, peft
from vade_jax.run import cluster
from vade_jax.store import metrics, run_file
from vade_jax.trainer import processes
from vade_jax.trainer.policy import Policy
from vade_jax.trainer.progress import Progress

EXPORTED = ("policy", "adapter")  # directories that a finished run leaves
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
# Settings that may be names on the hub, and what they name there.
ON_HUB = {"model.checkpoint": "model", "data.train": "dataset", "data.validation": "dataset"}
# What the path of a checkpoint must not have: orbax takes * ? [ ] for patterns and gs:/ for a bucket, and
# tensorstore a backslash for a separator. A message with control characters would not be a line.
_ODD = re.compile(r"[\\*?\[\]\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]|gs:/")
LONGEST = 3500  # bytes of a path; a system has 4,096, of which a checkpoint's files need some
_locks: set[int] = set()  # open descriptors, each of which holds the lock of a directory


# ------------------------------------------------------------------------------ the lock
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
                    f"{name}={workdir} is another run's, which has not ended: wait for it, stop it, or give another "
                    "directory"
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
        ValueError: it cannot be made, or checkpoints below it could not be read again.
    """
    path = os.path.abspath(directory)
    if odd := _ODD.search(path + "/"):
        raise ValueError(
            f"{name}={path!r} has {odd[0]!r}, and checkpoints below it could not be read again: give a "
            "directory without it"
        )
    if len(path.encode()) > LONGEST:
        raise ValueError(f"{name}={path} is longer than {LONGEST} bytes: give a shorter one")
    try:
        os.makedirs(directory, exist_ok=True)
    except OSError as error:
        reason = "is a file" if os.path.isfile(directory) else f"cannot be made ({error.strerror})"
        raise ValueError(f"{name}={directory} {reason}: give another directory") from error


# ------------------------------------------------------------------------------ whose it is
def pinned(run: settings.Run, workdir: str) -> dict[str, str]:
    """Returns the settings that name something on the hub, with commits: those that a resumed run began with.

    Raises:
        ValueError: a name is unknown, or the hub cannot be reached.
    """

    def pin():
        started, names = run_file.read(workdir).get("settings", {}), {}
        for field, kind in ON_HUB.items():
            section, name = field.split(".")
            text = getattr(getattr(run, section), name)
            try:
                names[field] = hub.pin(text, kind, started.get(section, {}).get(name, ""))
            except ValueError as error:
                raise ValueError(f"{field}: {error}") from error
            if names[field] != text:
                print(f"{field}: {names[field]}")
        return names

    return processes.on_leader(pin)


def check_settings(run: settings.Run, workdir: str, is_done: Callable[[], bool]) -> None:
    """Checks that a directory is a run's with these settings, or free.

    A run that has not saved a step owns nothing: its directory is reused, and one line says so. The
    processes of a run compare their settings here, because with different ones they would diverge. A run that
    `is_done` needs no checkpoint.

    Raises:
        ValueError: the run there was started with other values (names them), it lost its checkpoints, or the
            directory holds something that is not a run.
        Disagreement: the processes were given different settings.
    """
    cluster.only_leader_prints()
    processes.agree("--config", repr(run))

    def check():
        content = run_file.read(workdir)
        # Of a directory that is not a run's, the directories below may be those of runs that write.
        atomic.remove_strays(workdir, EXPORTED, deep=bool(content))
        if not content:
            _check_free(workdir)
            return
        try:  # a field that an earlier version did not have is its default
            there = settings.Run.from_dict(content["settings"]).to_dict()
        except ValueError as error:
            raise ValueError(
                f"{workdir} is of another version ({error}): give another --workdir"
            ) from error
        others = run_file.differences(there, run.to_dict(), MAY_CHANGE)
        if content["state"] == run_file.NEW and not _has_checkpoint(workdir):
            if others:
                print(
                    f"{workdir}: the run there saved no step, so this one takes over ({'; '.join(others)})"
                )
        elif others:
            raise ValueError(
                f"{workdir} is of a run with other settings ({'; '.join(others)}): give another --workdir or the "
                "old values"
            )
        elif not (_has_checkpoint(workdir) or is_done()):
            raise ValueError(
                f"{workdir} has what a run has made and no checkpoint to go on from: put its checkpoints/ back, "
                "or give another --workdir"
            )

    processes.on_leader(check)


def _check_free(workdir: str) -> None:
    """Raises ValueError if a new run would replace files that no run made, such as its own model's."""
    for name in (*EXPORTED, "checkpoints"):
        path = os.path.join(workdir, name)
        if os.path.isfile(path) or (os.path.isdir(path) and os.listdir(path)):
            raise ValueError(
                f"{path} is there and no run's: a run would replace it. Give a --workdir of its own"
            )


def _has_checkpoint(workdir: str) -> bool:
    return any(path.name.isdigit() for path in pathlib.Path(workdir).glob("checkpoints/*"))


def begin(run: settings.Run, workdir: str, identity: Mapping[str, Any], num_items: int) -> None:
    """Compares the data and the model with those that the run began with, and writes run.json.

    Without a checkpoint the run begins at step 1, and the metrics of an earlier start are removed.

    Args:
        run: the settings.
        workdir: the run directory, already checked by `check_settings`.
        identity: checksums of the data and the model, and the version of the rules that judge.
        num_items: training items.

    Raises:
        ValueError: the run began with other items or another model; warns about other pictures and rules.
    """

    def write():
        state = run_file.NEW
        if _has_checkpoint(workdir):
            state = run_file.RUNNING
            _check_identity(run_file.read(workdir).get("identity", {}), identity)
        else:
            pathlib.Path(workdir, metrics.FILE).unlink(missing_ok=True)
        content = {"state": state, "num_items": num_items, "identity": dict(identity)}
        run_file.write(workdir, content | {"settings": run.to_dict()})

    processes.on_leader(write)
    cluster.wait_until_shared(pathlib.Path(workdir, run_file.FILE))


def _check_identity(began: Mapping[str, Any], identity: Mapping[str, Any]) -> None:
    changed = {name for name, value in identity.items() if began.get(name) != value}
    back = "give the data that it began with, or another --workdir"
    for name, what in {
        "items": "data.train has other usable rows than when this run began, or in another order",
        "questions": "data.validation has other usable rows than when this run began, or in another order",
        "details": "rows of data.train or data.validation have another kind, other choices or other columns than "
        "when this run began",
    }.items():
        if name in changed:
            raise ValueError(f"the data changed: {what}: {back}")
    if "model" in changed:
        raise ValueError(
            "model.checkpoint is another model than when this run began, and what it learned belongs to that "
            "one: put that one back, or give another --workdir"
        )
    if "pictures" in changed:
        # Not an error: another version of Pillow may resize pictures to other bytes.
        print(
            "WARNING: the data changed: pictures of data.train or data.validation are not, to the byte, what "
            "this run began with: it goes on with what is there"
        )
    if "verifier" in changed:
        print(
            f"WARNING: so far answers were judged by version {began.get('verifier')} of the rules, from here on "
            f"by version {identity['verifier']}: rewards and counts of both may differ"
        )


def mark(workdir: str, state: str, **values: Any) -> None:
    """Notes in run.json how far the run came; only the leader calls it."""
    run_file.write(workdir, run_file.read(workdir) | {"state": state, **values})


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
        totals = {"step": progress.step, "rollouts_total": progress.rollouts_total}
        mark(workdir, run_file.DONE, **totals)
    processes.barrier()  # the other processes wait until it is written
