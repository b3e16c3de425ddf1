"""The run directory: whose it is, what a run writes to it, and when it is done.

Of several processes all save their part of a checkpoint; the leader writes the rest.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent import futures
from typing import Any

import numpy as np
import tqdm

from vade_jax import atomic, fields, settings
from vade_jax.data import hub
from vade_jax.models.qwen25vl import files, peft
from vade_jax.run import cluster
from vade_jax.run.build import Policy
from vade_jax.store import checkpoints, metrics, rollout_log
from vade_jax.trainer import loop, processes
from vade_jax.trainer.rounds import Round, StepData
from vade_jax.types import Metrics

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
# Fits a terminal of 80 columns with all of its numbers.
BAR = "RL {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{remaining} left{postfix}]"


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
        claim(path, wanted, MAY_CHANGE, settings.Run())

    processes.on_leader(open_in_leader)
    cluster.check_shared(path)


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
        if defaults is not None:
            found = _filled(found, defaults)
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


def _filled(found: Mapping[str, Any], defaults: fields.Section) -> dict[str, Any]:
    """Returns the values of a file, and the defaults of the fields that it lacks."""
    filled = json.loads(json.dumps(defaults.to_dict())) | dict(found)
    for name in defaults.to_dict():
        section = getattr(defaults, name)
        if isinstance(section, fields.Section) and isinstance(filled[name], dict):
            filled[name] = _filled(filled[name], section)
    return filled


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
    keep, every = run.checkpoint.keep, run.checkpoint.every
    return checkpoints.Checkpointer(path, keep=keep, every=every, is_sole=True)


def is_done(run: settings.Run, workdir: str) -> bool:
    """Returns whether the last step was taken and its policy exported; touches no device."""
    made = [os.path.join(workdir, name) for name in ("policy/config.json", metrics.FILE)]
    records = metrics.read(workdir) if all(map(os.path.exists, made)) else []
    if not records:
        return False
    step, total = records[-1]["step"], records[-1]["vade/rollouts_total"]
    if run.num_epochs and step:  # the data are not read for this
        run = run.with_items(round(step * run.num_prompts / records[-1]["vade/epochs"]))
    return loop.is_over(step, total, num_steps=run.num_steps, max_rollouts=run.max_rollouts)


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
    processes.on_leader(lambda: None)  # the others stay until it is written


# ------------------------------------------------------------------------------ what is recorded
class RunRecorder:
    """Implements `loop.Recorder` for a run directory."""

    def __init__(
        self,
        workdir: str,
        checkpointer: checkpoints.Checkpointer,
        run: settings.Run,
        step: int,
        items: int = 0,
    ):
        """Starts after `step`: metrics and rollouts of later steps are made again.

        `items` is the checksum of the training items, for `restore`.

        Raises:
            ValueError: metrics do not come to `step`, and would have a gap.
        """
        self._workdir, self._checkpointer = workdir, checkpointer
        self._seed, self._config, self._items = run.seed, run.to_dict(), items
        self._start = _start(self._config)
        self._metrics = None
        if processes.is_leader():
            self._metrics = metrics.Writer(
                workdir,
                tensorboard=run.tensorboard,
                wandb=run.wandb,
                config=self._config,
            )
            self._metrics.truncate_after(step if step else -1)
            _check_reaches(self._metrics.path, step)
            rollout_log.remove_after(workdir, step)
        self._bar = tqdm.tqdm(
            disable=not processes.is_leader(),
            total=run.num_steps,
            initial=step,
            bar_format=BAR,
            smoothing=0.1,
        )
        self._watched: dict[str, str] = {}
        # A step's answers are written while the engine makes the next ones.
        self._log_thread = futures.ThreadPoolExecutor(1, "rollouts")
        self._log_written = futures.Future()
        self._log_written.set_result(None)

    def step(self, step: int, values: Metrics, data: StepData | None) -> None:
        """See `loop.Recorder`."""
        if self._metrics is None:
            return
        self._metrics.write(step, values)
        self._watch(values, draw=data is None)
        if data is not None:
            self._log_written.result()
            path = rollout_log.path(self._workdir, step)
            self._log_written = self._log_thread.submit(_write_log, path, data)
            self._bar.update()  # draws at most ten times a second

    def add(self, step: int, values: Metrics) -> None:
        """See `loop.Recorder`."""
        if self._metrics is not None:
            self._metrics.add(step, values)
            self._watch(values)

    def _watch(self, values: Metrics, *, draw: bool = True) -> None:
        self._watched |= _key_numbers(values)  # the last validation stays in sight
        self._bar.set_postfix(self._watched, refresh=draw)

    def save(self, progress: loop.Progress, *, last: bool) -> None:
        """See `loop.Recorder`."""
        if last or self._checkpointer.is_due(progress.step):
            self._log_written.result()  # a checkpoint's answers are there before it is
        counters = {
            "step": progress.step,
            "seed": self._seed,
            "items": self._items,
            "start": self._start,
            "rollouts_total": progress.rollouts_total,
            "tokens_total": progress.tokens_total,
            "known": sorted(progress.known),
            "validated": progress.validated,
            "skipped_updates": progress.skipped_updates,
        }
        self._checkpointer.save(
            progress.step,
            progress.state,
            _selection(progress),
            counters,
            self._config,
            force=last,
        )
        if last:
            self._checkpointer.wait()

    def close(self) -> None:
        """Finishes what is being written."""
        self._bar.close()
        self._log_thread.shutdown()
        self._checkpointer.close()
        if self._metrics is not None:
            self._metrics.close()


def _check_reaches(path: pathlib.Path, step: int) -> None:
    """Raises ValueError unless the last line of metrics is of `step`; 0 has none in a new run."""
    records = metrics.scan(path)[0] if path.exists() else []
    if step and (not records or records[-1]["step"] < step):
        raise ValueError(
            f"{path} ends before step {step}, which the checkpoint has: it was cut short; restore it from "
            "a copy, or delete the checkpoints that it does not reach"
        )


def restore(
    saved: checkpoints.Checkpointer, progress: loop.Progress, items: int = 0
) -> loop.Progress:
    """Returns the latest checkpoint's progress, or `progress` when there is none.

    Args:
        saved: the run's checkpoints.
        progress: of the shapes that are wanted.
        items: the checksum of the training items, whom the selector knows by their places alone.

    Raises:
        ValueError: the run began with other items, or from another model.
    """
    step = saved.latest_step()
    if step is None:
        return progress
    state, selection, counters = saved.restore(step, progress.state, _selection(progress))
    if counters.pop("items", items) != items:  # an earlier version did not keep it
        raise ValueError(
            "data.train has other usable rows than when this run began, or in another order: give the "
            "data that it began with, or another --workdir"
        )
    started = counters.pop("start", 0)  # an earlier version did not keep this, either
    if started and started != _start(config := saved.config(step)):
        raise ValueError(
            f"model.checkpoint={config['model']['checkpoint']} is another model than when this run began, and "
            "what it learned belongs to that one: put that one back, or give another --workdir"
        )
    print(f"resuming after step {step}")
    del counters["seed"]  # the rest is what `RunRecorder.save` writes
    counters |= {"known": frozenset(counters["known"])}
    counters.setdefault("validated", step)  # an earlier version did not keep it
    return loop.Progress(state=state, **selection, **counters)


def _start(config: Mapping[str, Any]) -> int:
    """Returns the identity of the directory that a run starts from.

    0 where its name says it: a commit on the hub, or a model that the run itself makes.
    """
    checkpoint = config["model"]["checkpoint"]
    if not checkpoint or config["warm_start"]["num_steps"] or hub.parse(checkpoint):
        return 0
    return processes.on_leader(lambda: files.identity(checkpoint))


def _selection(progress: loop.Progress) -> dict[str, Any]:
    """Returns what has a value for every item: too many for the JSON of the counters."""
    return {"selector": progress.selector, "visited_I": progress.visited_I}


def _write_log(path: pathlib.Path, data: StepData) -> None:
    # The loop needs the interpreter too, until the engine is at work: it is let through first.
    time.sleep(0.003)
    rollout_log.write(path, *tables(data))


def tables(data: StepData) -> tuple[rollout_log.Table, rollout_log.Table]:
    """Returns the columns of the rollout log, of all answers and of all groups, round after round."""
    sizes = [len(one.chosen.items) for one in data.rounds]
    answers, groups = (_joined([f(one) for one in data.rounds]) for f in (_of_answers, _of_groups))
    answers |= {"group": data.rollouts.group_N}
    groups |= {
        "round": np.repeat(np.arange(1, 1 + len(sizes)), sizes),
        "trained": np.isin(np.arange(len(data.keep_M)), data.learned_M) & data.keep_M,
    }
    return answers, groups


def _joined(of_rounds: Sequence[Mapping[str, Sequence[Any]]]) -> dict[str, Sequence[Any]]:
    if len(of_rounds) == 1:
        return dict(of_rounds[0])
    return {name: [x for one in of_rounds for x in one[name]] for name in of_rounds[0]}


def _of_answers(one: Round) -> rollout_log.Table:
    """Returns the columns of a round with a value for every answer."""
    judged = lambda x_N: np.where(one.scores.known_N, x_N, np.nan)
    return {
        "answer": one.scores.text_N,
        "extracted": one.scores.extracted_N,
        "reason": one.scores.reason_N,
        "correct": judged(one.scores.correct_N),
        "reward": judged(one.scores.reward_N),
        "length": one.rollouts.length_N,
        "finished": one.rollouts.finished_N,
    }


def _of_groups(one: Round) -> rollout_log.Table:
    """Returns the columns of a round with a value for every prompt."""
    chosen = one.chosen
    counts = {name: one.belief[name] for name in ("alpha", "beta") if name in one.belief}
    if chosen.proposal.p_M is not None:
        counts["p_drawn"] = chosen.proposal.p_M
    return {
        "uid": [item.uid for item in chosen.items],
        "prompt": [prompt.text for prompt in chosen.prompts],
        "gold": [item.answer for item in chosen.items],
        "kind": [item.kind for item in chosen.items],
        **counts,
        "metadata": [item.metadata for item in chosen.items],
    }


def _key_numbers(values: Metrics) -> dict[str, str]:
    """Returns the numbers that a person watches."""
    names = {"score": "critic/score/mean", "effective": "vade/trained_effective_ratio_correct"}
    shown = {k: f"{values[name]:.2f}" for k, name in names.items() if name in values}
    valid = [v for name, v in values.items() if name.startswith("val/validation/")]
    return {"valid": f"{valid[0]:.3f}", **shown} if valid else shown
