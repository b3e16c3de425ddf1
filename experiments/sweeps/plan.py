"""The runs of a sweep: where each lies, with which config, and whether it is finished."""

import dataclasses
import difflib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence

from ml_collections import ConfigDict

from experiments import checks, run_directory
from vade_jax.store import metrics


@dataclasses.dataclass(frozen=True)
class Run:
    """One run: {workdir}/{data}/{loss}/{arm}_seed{seed}, its config and log beside it."""

    group: str  # data/loss
    arm: str
    seed: int
    config: ConfigDict
    directory: str

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
        return max(record["step"] for record in records) >= self.config.num_steps


def runs(c: ConfigDict, workdir: str) -> list[Run]:
    """Returns the runs in the order they are made: all of a seed before the next.

    Raises:
        ValueError: an unknown word, a config that cannot run, or a finished run of another config.
    """
    if "known" not in c:
        raise ValueError(
            "--config is of one run: give a sweep, such as configs/tiny_table1.py or "
            "configs/ablations.py:base=FILE"
        )
    made = [
        _run(c, workdir, data, loss, arm, seed)
        for seed in _seeds(c.seeds)
        for data in words("data", c.data, c.known.data)
        for loss in words("losses", c.losses, c.known.losses)
        for arm in words("arms", c.arms, c.known.arms)
    ]
    for run in made:
        _check(run)
    return made


def words(name: str, text: str, known: Sequence[str]) -> list[str]:
    """Returns the words of a comma-separated field, each once.

    Raises:
        ValueError: there is none, or an unknown one; with the nearest known one.
    """
    found = list(
        dict.fromkeys(word.strip() for word in text.split(",") if word.strip())
    )
    if not found:
        raise ValueError(f"{name} is empty: some of {', '.join(known)}")
    for word in found:
        if word not in known:
            close = difflib.get_close_matches(word, list(known), 1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ValueError(f"{name}={word!r}: {hint}known are {', '.join(known)}")
    return found


def changed(run: ConfigDict, *changes: Mapping) -> ConfigDict:
    """Returns a copy of a config with nested values put in, one after the other.

    A sampler's options may be new fields, nothing else may. Another sampler starts without any.
    """
    c = ConfigDict(run.to_dict())
    for change in changes:
        sampler = change.get("sampler", {})
        own = [name for name, x in c.sampler.items() if isinstance(x, ConfigDict)]
        c.unlock()
        if sampler.get("name", c.sampler.name) != c.sampler.name:
            for name in own:
                c.sampler[name] = ConfigDict()
        c.lock()
        for name in own:
            c.sampler[name].unlock()
        c.update(change)
    return c


def _run(c, workdir, data, loss, arm, seed):
    known = c.known
    config = changed(c.run, known.data[data], known.losses[loss], known.arms[arm])
    config.seed = seed
    shared = os.path.join(workdir, f"warm_start_seed{seed}")
    config.warm_start.directory = shared
    group = f"{data}/{loss}"
    directory = os.path.join(workdir, data, loss, f"{arm}_seed{seed}")
    return Run(group, arm, seed, config, directory)


def _seeds(text):
    try:
        return list(dict.fromkeys(int(word) for word in text.split(",")))
    except ValueError:
        raise ValueError(f"seeds={text!r}: numbers with commas between") from None


def _check(run):
    try:
        checks.config(run.config)
    except ValueError as error:
        raise ValueError(f"{run.name}: {error}") from error
    if (
        run.is_finished()
    ):  # it will not be started, so nothing else compares the configs
        wanted = json.loads(run.config.to_json_best_effort())
        path = pathlib.Path(run.directory) / "config.json"
        run_directory.claim(path, wanted, run_directory.MAY_CHANGE)
