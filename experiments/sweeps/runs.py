"""Which runs a sweep is made of: where each lies, with which settings, and whether it is finished."""

import dataclasses
import itertools
import json
import os
from collections.abc import Mapping
from typing import Any

from experiments import hooks
from vade_jax import atomic, fields, imports, samplers, settings
from vade_jax.run import checks, commits, directory, job
from vade_jax.run.checks import place

Values = Mapping[str, Any]  # of settings, nested as they are


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
        """See `job.is_done`."""
        return job.is_done(self.settings, self.directory)

    def write_config(self) -> str:
        """Writes the config beside the run's directory; returns the --config that reads it."""
        path = self.directory + ".json"
        atomic.write_text(path, json.dumps(self.settings.to_dict(), indent=2) + "\n")
        return f"configs/from_json.py:{path}"


def planned(values: Values, workdir: str) -> list[PlannedRun]:
    """Returns the runs of a sweep's config in the order they are made: all of a seed before the next.

    Raises:
        ValueError: a config of one run, an unknown word, settings that cannot run, or a finished run
            of other settings.
    """
    if "known" not in values:
        raise ValueError(
            "--config is of one run: give a sweep, such as configs/sweep.py or "
            "configs/sweep.py:base=FILE"
        )
    data, losses, arms = (chosen(values, name) for name in ("data", "losses", "arms"))
    _meaning("baseline", values["baseline"], values["known"]["arms"])  # known, chosen or not
    try:
        seeds = dict.fromkeys(int(word) for word in values["seeds"].split(","))
    except ValueError:
        raise ValueError(f"seeds={values['seeds']!r}: numbers with commas between") from None
    _check_shared(values["run"])
    runs = []
    for seed, source, loss, arm in itertools.product(seeds, data, losses, arms):
        name = f"{source}/{loss}/{arm}_seed{seed}"
        # Runs of a seed share their warm start: they differ in nothing that it depends on.
        shared = {"directory": os.path.join(workdir, f"warm_start_seed{seed}")}
        own = {"seed": seed, "warm_start": shared}
        wanted = values["run"]
        for changes in (data[source], losses[loss], arms[arm], own):
            wanted = changed(wanted, changes)
        try:
            run = settings.Run.from_dict(wanted)
            checks.check(run, hooks.ALL)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        runs.append(PlannedRun(f"{source}/{loss}", arm, run, os.path.join(workdir, name)))
    for run in runs:
        if run.is_finished():  # not started again, so nothing else compares its config
            names = commits.pin(commits.names(run.settings), run.directory)
            now = json.loads(json.dumps(fields.replaced(run.settings, names).to_dict()))
            path = os.path.join(run.directory, "config.json")
            place.check_same(path, now, directory.MAY_DIFFER, settings.Run())
    return runs


def _check_shared(run: Values) -> None:
    """Raises ValueError if all runs are given what a sweep gives each of them."""
    if run["seed"]:
        raise ValueError(f"run.seed={run['seed']}: a sweep has seeds, such as --config.seeds=0,1")
    if start := run["warm_start"]["directory"]:
        raise ValueError(
            f"run.warm_start.directory={start!r}: a sweep makes a warm start for each seed; train from one of "
            "your own by run.model.checkpoint, with run.warm_start.num_steps=0"
        )


def pinned(runs: list[PlannedRun]) -> list[PlannedRun]:
    """Returns the runs with one commit for each name on the hub, a begun run's if one has it.

    Raises:
        ValueError: a name is unknown, or the hub cannot be reached.
    """
    names_of = lambda run: tuple(commits.names(run.settings).values())
    begun = [run for run in runs if os.path.exists(os.path.join(run.directory, "config.json"))]
    found, made = {}, []
    for run in runs:
        if (names := names_of(run)) not in found:
            # Of the others that have begun, as where a new arm has the same model and other data.
            like = next((other for other in begun if names_of(other) == names), [*begun, run][0])
            found[names] = commits.pin(commits.names(run.settings), like.directory)
        made.append(dataclasses.replace(run, settings=fields.replaced(run.settings, found[names])))
    return made


def chosen(values: Values, field: str) -> dict[str, Values]:
    """Returns what the words of a field stand for; a word that is there twice counts once.

    An arm may have a learning rate of its own: `vade@5e-5`. Selectors differ in the largest one that
    they bear, so a comparison at one rate says little.

    Raises:
        ValueError: there is no word, an unknown one (the message has the nearest known one), or a rate
            that is no number.
    """
    known = values["known"][field]
    words = [word.strip() for word in values[field].split(",") if word.strip()]
    if not words:
        raise ValueError(f"{field} is empty: some of {', '.join(known)}")
    return {imports.label(word): _meaning(field, word, known) for word in words}


def _meaning(field: str, word: str, known: Mapping[str, Values]) -> Values:
    """Returns the changes that a word stands for; see `chosen`."""
    is_arm = field in ("arms", "baseline")
    name, at, rate = word.partition("@") if is_arm else (word, "", "")
    if is_arm and ":" in name:
        meaning = _of_file(field, name)
    else:
        fields.check_word(field, name, known)
        meaning = known[name]
    if not at:
        return meaning
    try:
        return changed(meaning, {"optimizer": {"learning_rate": float(rate)}})
    except ValueError:
        raise ValueError(f"{field}={word!r}: a learning rate after the @, such as 5e-5") from None


def _of_file(field: str, name: str) -> Values:
    """Returns the changes to a selector of a user's own file, with the settings that go with it."""
    changes = {"selector": {"name": name, "options": {}, "arrays": {}}}
    for path, value in samplers.find(name, field).goes_with.items():
        *sections, last = path.split(".")
        nested = {last: value}
        for section in reversed(sections):
            nested = {section: nested}
        changes = changed(changes, nested)
    return changes


def changed(values: Values, changes: Values) -> dict[str, Any]:
    """Returns nested values in which `changes` have replaced what they name."""
    both = dict(values)
    for name, new in changes.items():
        old = both.get(name)
        # Another selector starts without the options and arrays of the one before.
        replaced = name == "selector" and new.get("name", old["name"]) != old["name"]
        nested = isinstance(new, Mapping) and isinstance(old, Mapping) and not replaced
        both[name] = changed(old, new) if nested else new
    return both
