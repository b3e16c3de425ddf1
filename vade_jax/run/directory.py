"""The run directory: whose it is, what it was made with, when it is done, and the policy in it."""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from vade_jax import atomic, fields, settings
from vade_jax.models.qwen import files, peft
from vade_jax.run import checks, cluster
from vade_jax.run.policy import Policy
from vade_jax.store import metrics
from vade_jax.trainer import loop, passes, processes

STARTED = ("tiny_model", "warm_start", "metrics.jsonl")  # what a run makes first
# What runs of one table may differ in: where and how they were made, not what was asked of them.
MAY_DIFFER = (
    *("checkpoint", "tensorboard", "wandb", "engine", "layout", "perf"),
    *("data.num_threads", "reward.timeout_s", "reward.concurrency", "warm_start.directory"),
)
# What a resumed run may have other values of: none of it changes what was done so far.
MAY_CHANGE = (*MAY_DIFFER, "num_steps", "num_epochs", "budget", "eval", "refill")
EXPORTED = ("policy", "adapter")  # when it ends
REPLACED = (
    *EXPORTED,
    "tiny_model",
    "warm_start",
)  # directories that are written beside and then renamed


def own(workdir: str, name: str = "--workdir") -> contextlib.ExitStack:
    """Makes a directory this run's alone until the returned context is left, or the process dies.

    Args:
        workdir: the run directory, or another one that a run writes to; made if it is not there.
        name: of the setting that gave it, for the message.

    Raises:
        ValueError: another run works there now.
    """
    with contextlib.ExitStack() as stack:

        def lock():
            os.makedirs(workdir, exist_ok=True)
            place = os.open(workdir, os.O_RDONLY)
            stack.callback(os.close, place)
            try:
                fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError(
                    f"{name}={workdir} is another run's, which has not ended: wait for it, stop it, "
                    "or give another directory"
                ) from None
            except OSError:
                pass  # not every network file system locks a directory

        processes.on_leader(lock)
        return stack.pop_all()


def open_for(run: settings.Run, workdir: str) -> None:
    """Makes the run directory, or checks that it belongs to a run with these settings.

    Processes compare their settings here: with other ones they would drift apart.

    Raises:
        ValueError: the run there was started with other values; names them. Or what is there is no run,
            or the processes do not share the directory.
        Disagreement: the processes were given different settings.
    """
    cluster.only_leader_prints()
    wanted = json.loads(json.dumps(run.to_dict()))  # as the file will have it
    processes.agree("--config", json.dumps(wanted))
    path = pathlib.Path(workdir) / "config.json"

    def open_in_leader():
        atomic.remove_strays(workdir, REPLACED)
        if path.exists() and not any(path.with_name(name).exists() for name in STARTED):
            _check_is_of_run(path)
            path.unlink()  # of a start that failed before it made anything
        if not path.exists():
            _check_is_free(workdir)
        check_same(path, wanted, MAY_CHANGE, settings.Run())
        # What is done keeps the settings that it was made with.
        if not (path.exists() and is_done(run, workdir)):
            check_goes_on(workdir)
            atomic.write_text(path, json.dumps(wanted, indent=2) + "\n")

    processes.on_leader(open_in_leader)
    cluster.check_shared(path)


def _check_is_free(workdir: str) -> None:
    """Raises ValueError if a new run would replace what no run made.

    Such as the checkpoint that it starts from: `model.checkpoint` may lie in its directory.
    """
    for name in (*EXPORTED, "checkpoints"):
        place = os.path.join(workdir, name)
        if os.path.isfile(place) or (os.path.isdir(place) and os.listdir(place)):
            raise ValueError(
                f"{place} is there and no run's: a run would replace it. Give a --workdir of its own"
            )


def _check_is_of_run(path: pathlib.Path) -> None:
    """Raises ValueError unless a config.json is a run's: a checkpoint of Hugging Face has one, too."""
    with contextlib.suppress(ValueError):
        found = json.loads(path.read_text())
        if isinstance(found, dict) and {"num_steps", "sampler"} <= found.keys():
            return
    raise ValueError(
        f"{path} is no run's: give a --workdir of its own, which need not be there yet"
    )


def claim(
    path: str | os.PathLike,
    wanted: Mapping[str, Any],
    may_change: Sequence[str] = (),
    defaults: fields.Section | None = None,
) -> None:
    """Writes what something is made with, or checks that it was made with the same; see `check_same`."""
    check_same(path, wanted, may_change, defaults)
    atomic.write_text(path, json.dumps(wanted, indent=2) + "\n")


def check_same(
    path: str | os.PathLike,
    wanted: Mapping[str, Any],
    may_change: Sequence[str] = (),
    defaults: fields.Section | None = None,
) -> None:
    """Checks that a file, if it is there, has the same values but in `may_change`.

    What the file does not have is as in `defaults`: an earlier version did not know the field.

    Raises:
        ValueError: the file is unreadable, or has other values; names them.
    """
    path = pathlib.Path(path)
    if path.exists():
        try:
            found = json.loads(path.read_text())
        except ValueError as error:
            raise ValueError(f"{path} is not readable JSON: {error}") from error
        if not isinstance(found, dict):
            raise ValueError(f"{path} holds no names and values: give another --workdir")
        if other := differing(found, wanted, may_change, defaults):
            raise ValueError(
                f"{path} is of another config ({'; '.join(other)}): give another "
                "--workdir or the old values"
            )


def differing(
    found: Mapping[str, Any],
    wanted: Mapping[str, Any],
    may_differ: Sequence[str] = (),
    defaults: fields.Section | None = None,
) -> list[str]:
    """Returns a line for each value of two configs that differs, but for `may_differ`; see `check_same`."""
    if defaults is not None:
        found = filled(found, defaults)
    return [
        f"{name}: {old!r} there, {new!r} now"
        for name, old, new in _differences(found, wanted)
        if not {name, name.split(".")[0]} & set(may_differ)
    ]


def filled(found: Mapping[str, Any], defaults: fields.Section) -> dict[str, Any]:
    """Returns the values of a file, and the defaults of the fields that it lacks."""
    values = json.loads(json.dumps(defaults.to_dict())) | dict(found)
    for name in defaults.to_dict():
        section = getattr(defaults, name)
        if isinstance(section, fields.Section) and isinstance(values[name], dict):
            values[name] = filled(values[name], section)
    return values


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


def is_done(run: settings.Run, workdir: str) -> bool:
    """Returns whether the last step was taken and its policy exported; touches no device."""
    made = [os.path.join(workdir, name) for name in ("policy/config.json", metrics.FILE)]
    records = metrics.read(workdir) if all(map(os.path.exists, made)) else []
    if not records:
        return False
    step, total = records[-1]["step"], records[-1]["vade/rollouts_total"]
    if not step:
        return False
    # The data are not read for this.
    places = settings.places_per_item(run.sampler.name, run.sampler.options)
    num_items = metrics.num_items(records, run.num_prompts, places)
    return is_over(run.with_items(num_items) if num_items else run, step, total, num_items)


def is_over(run: settings.Run, step: int, rollouts_total: int, num_items: int) -> bool:
    """Returns whether a run over so many items ends after a step, as `loop.run` has it."""
    return loop.is_over(
        step,
        rollouts_total,
        num_steps=run.num_steps,
        max_rollouts=run.max_rollouts,
        next_pass=passes.cost(run.whole_measure, checks.make_sampler(run), step, num_items),
    )


def check_goes_on(workdir: str) -> None:
    """Checks that a run which has saved a step still has a checkpoint to go on from.

    Call it before config.json is replaced: how often the run saved is in the old one.

    Raises:
        ValueError: it has none; started anew, it would replace what it has made.
    """
    saved = pathlib.Path(workdir, "checkpoints")
    if saved.is_dir() and any(path.name.isdigit() for path in saved.iterdir()):
        return
    records = metrics.read(workdir) if os.path.exists(os.path.join(workdir, metrics.FILE)) else []
    config = pathlib.Path(workdir, "config.json")
    found = json.loads(config.read_text()) if config.exists() else {}
    every = found.get("checkpoint", {}).get("every", settings.Checkpoint().every)
    # The second checkpoint is not begun before the first is whole.
    has_saved = bool(records) and records[-1]["step"] > 2 * every
    if has_saved or os.path.exists(os.path.join(workdir, "policy", files.CONFIG)):
        raise ValueError(
            f"{workdir} has what a run has made and no checkpoint to go on from: put its checkpoints/ "
            "back, or give another --workdir"
        )


# ------------------------------------------------------------------------------ the policy
def drop_policy(workdir: str) -> None:
    """Removes what a shorter run exported: the policy there is always the last one's.

    A link, such as to a larger disk, stays: what it points to is emptied.
    """
    if processes.is_leader():
        for name in EXPORTED:
            path = os.path.join(workdir, name)
            shutil.rmtree(os.path.realpath(path), ignore_errors=True)
            if os.path.islink(path):
                os.makedirs(os.path.realpath(path), exist_ok=True)


def export_policy(policy: Policy, progress: loop.Progress, workdir: str) -> None:
    """Writes the policy as a Hugging Face checkpoint, config.json last: it means complete.

    Of an adapter both: its sum with the weights that it was trained on, and itself as PEFT keeps it.
    """
    params, leader = progress.state.params, processes.is_leader()
    directory, adapter = (os.path.join(workdir, name) for name in EXPORTED)
    if policy.adapter is not None and leader:
        peft.save(adapter, policy.shape, policy.adapter, params, os.path.abspath(policy.directory))
    processes.on_leader(lambda: files.copy_tokenizer(policy.directory, directory))
    files.save(directory, policy.shape, policy.whole(params), write=leader)
    processes.barrier()  # the others stay until it is written
