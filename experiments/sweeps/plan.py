"""Which runs a sweep is made of: where each lies, with which settings, and whether it is finished."""

import dataclasses
import difflib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Self

from vade_jax import settings
from vade_jax.run import checks, directory
from vade_jax.store import metrics

Values = Mapping[str, Any]  # of settings, nested as they are


@dataclasses.dataclass(frozen=True)
class Sweep:
    """What is varied: every arm with every loss, data and seed."""

    name: str  # of the folder of tables and figures
    baseline: str  # the arm that the others are compared with, seed by seed
    run: Values  # what all runs share
    arms: Mapping[str, Values]  # label -> what differs
    losses: Mapping[str, Values]
    data: Mapping[str, Values]
    seeds: tuple[int, ...]

    @classmethod
    def from_dict(cls, values: Values) -> Self:
        """Returns the sweep of a config file: words with commas between, and what they stand for.

        Raises:
            ValueError: it is a config of one run, or has an unknown word.
        """
        if "known" not in values:
            raise ValueError(
                "--config is of one run: give a sweep, such as configs/tiny_table1.py or "
                "configs/ablations.py:base=FILE"
            )
        varied = {}
        for name, known in values["known"].items():
            chosen = words(name, values[name], list(known))
            varied[name] = {word: known[word] for word in chosen}
        try:
            seeds = dict.fromkeys(int(word) for word in values["seeds"].split(","))
        except ValueError:
            raise ValueError(f"seeds={values['seeds']!r}: numbers with commas between") from None
        same = {name: values[name] for name in ("name", "baseline", "run")}
        return cls(**same, **varied, seeds=tuple(seeds))


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """One run: {workdir}/{data}/{loss}/{arm}_seed{seed}, its config and log beside it."""

    group: str  # data/loss
    arm: str
    settings: settings.Run
    directory: str

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def name(self) -> str:
        return f"{self.group}/{self.arm}_seed{self.seed}"

    @property
    def log(self) -> str:
        return self.directory + ".log"

    def is_finished(self) -> bool:
        """Returns whether its last step was taken and its policy written; touches no device."""
        exported = os.path.join(self.directory, "policy", "config.json")
        if not os.path.exists(exported):
            return False
        records = metrics.read(self.directory)
        return max(record["step"] for record in records) >= self.settings.num_steps

    def write_config(self) -> str:
        """Writes the config beside the run's directory; returns the --config that reads it."""
        path = pathlib.Path(self.directory + ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(self.settings.to_dict(), indent=2) + "\n")
        return f"configs/from_json.py:{path}"


def runs(sweep: Sweep, workdir: str) -> list[PlannedRun]:
    """Returns the runs in the order they are made: all of a seed before the next.

    Raises:
        ValueError: settings that cannot run, or a finished run of other settings.
    """
    made = [
        _run(sweep, workdir, data, loss, arm, seed)
        for seed in sweep.seeds
        for data in sweep.data
        for loss in sweep.losses
        for arm in sweep.arms
    ]
    for run in made:
        if run.is_finished():  # not started again, so nothing else compares its config
            wanted = json.loads(json.dumps(run.settings.to_dict()))
            path = os.path.join(run.directory, "config.json")
            directory.claim(path, wanted, directory.MAY_CHANGE)
    return made


def _run(sweep: Sweep, workdir: str, data: str, loss: str, arm: str, seed: int) -> PlannedRun:
    values = sweep.run
    for changes in (sweep.data[data], sweep.losses[loss], sweep.arms[arm]):
        values = changed(values, changes)
    # Runs of a seed share their warm start: they differ in nothing that it depends on.
    shared = {"directory": os.path.join(workdir, f"warm_start_seed{seed}")}
    values = changed(values, {"seed": seed, "warm_start": shared})
    group, name = f"{data}/{loss}", f"{arm}_seed{seed}"
    try:
        run = settings.Run.from_dict(values)
        checks.check(run)
    except ValueError as error:
        raise ValueError(f"{group}/{name}: {error}") from error
    return PlannedRun(group, arm, run, os.path.join(workdir, data, loss, name))


def changed(values: Values, changes: Values) -> dict[str, Any]:
    """Returns nested values with others put in. Another sampler starts without options and arrays."""
    sampler = changes.get("sampler", {})
    if sampler.get("name", values["sampler"]["name"]) != values["sampler"]["name"]:
        values = {**values, "sampler": {"name": sampler["name"]}}
    return _merged(values, changes)


def _merged(values: Values, changes: Values) -> dict[str, Any]:
    both = dict(values)
    for name, new in changes.items():
        old = both.get(name)
        nested = isinstance(new, Mapping) and isinstance(old, Mapping)
        both[name] = _merged(old, new) if nested else new
    return both


def words(name: str, text: str, known: Sequence[str]) -> list[str]:
    """Returns the words of a comma-separated field, each once.

    Raises:
        ValueError: there is none, or an unknown one; with the nearest known one.
    """
    found = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise ValueError(f"{name} is empty: some of {', '.join(known)}")
    for word in found:
        if word not in known:
            close = difflib.get_close_matches(word, known, 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(f"{name}={word!r}: {hint}known are {', '.join(known)}")
    return found
