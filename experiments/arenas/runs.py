"""The runs of a sweep: the directory and the settings of each, and whether it is finished."""

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
from vade_jax.store import metrics

Values = Mapping[str, Any]  # values of settings, nested like the settings


@dataclasses.dataclass(frozen=True)
class PlannedRun:
    """One run, in {workdir}/{data}/{loss}/{arm}_seed{seed}; its config and log are next to the directory."""

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
        """Returns whether the run is finished, see `job.is_done`."""
        return job.is_done(self.settings, self.directory)

    def has_stepped(self) -> bool:
        """Returns whether the run has taken a step, so that its programs are compiled."""
        path = os.path.join(self.directory, metrics.FILE)
        return os.path.exists(path) and any(line["step"] for line in metrics.read(self.directory))

    def write_config(self) -> str:
        """Writes the config next to the run's directory; returns the value of --config that reads it."""
        path = self.directory + ".json"
        atomic.write_text(path, json.dumps(self.settings.to_dict(), indent=2) + "\n")
        return f"configs/from_json.py:{path}"


def planned(values: Values, workdir: str) -> list[PlannedRun]:
    """Returns the runs of a sweep's config in the order they are made: all of one seed before the next.

    Raises:
        ValueError: the config is of a single run, a word is unknown, settings cannot run, or a finished
            run has other settings.
    """
    if "known" not in values:
        raise ValueError(
            "--config is of one run: give a sweep, such as configs/sweep.py or "
            "configs/sweep.py:base=FILE"
        )
    data, losses, arms = (chosen(values, name) for name in ("data", "losses", "arms"))
    # The baseline must be known, but need not be among the chosen arms.
    _meaning("baseline", values["baseline"], values["known"]["arms"])
    try:
        seeds = dict.fromkeys(int(word) for word in values["seeds"].split(","))
    except ValueError:
        raise ValueError(f"seeds={values['seeds']!r}: numbers with commas between") from None
    _check_shared(values["run"])
    runs = []
    for seed, source, loss, arm in itertools.product(seeds, data, losses, arms):
        name = f"{source}/{loss}/{arm}_seed{seed}"
        # Runs with the same seed share their warm start: nothing that it depends on differs between them.
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
        if run.is_finished():  # it is not started again, so its config is compared only here
            names = commits.pin(commits.names(run.settings), run.directory)
            now = json.loads(json.dumps(fields.replaced(run.settings, names).to_dict()))
            path = os.path.join(run.directory, "config.json")
            place.check_same(path, now, directory.MAY_DIFFER, settings.Run())
    return runs


def _check_shared(run: Values) -> None:
    """Raises ValueError if the shared settings have a seed or a warm start: a sweep sets both itself."""
    if run["seed"]:
        raise ValueError(f"run.seed={run['seed']}: a sweep has seeds, such as --config.seeds=0,1")
    if start := run["warm_start"]["directory"]:
        raise ValueError(
            f"run.warm_start.directory={start!r}: a sweep makes a warm start for each seed; train from one of "
            "your own by run.model.checkpoint, with run.warm_start.num_steps=0"
        )


def pinned(runs: list[PlannedRun]) -> list[PlannedRun]:
    """Returns the runs with one commit for each name on the hub: that of a run that has begun, if any has.

    Raises:
        ValueError: a name is unknown, or the hub cannot be reached.
    """
    names_of = lambda run: tuple(commits.names(run.settings).values())
    begun = [run for run in runs if os.path.exists(os.path.join(run.directory, "config.json"))]
    found, made = {}, []
    for run in runs:
        if (names := names_of(run)) not in found:
            # Prefers a begun run with the same names. Otherwise any begun run helps: a new arm may share
            # its model and have other data.
            like = next((other for other in begun if names_of(other) == names), [*begun, run][0])
            found[names] = commits.pin(commits.names(run.settings), like.directory)
        made.append(dataclasses.replace(run, settings=fields.replaced(run.settings, found[names])))
    return made


def chosen(values: Values, field: str) -> dict[str, Values]:
    """Returns what the words of a field stand for; a repeated word counts once.

    An arm may have its own learning rate: `vade@5e-5`. Selectors differ in the largest rate that they
    tolerate, so a comparison at a single rate says little.

    Raises:
        ValueError: there is no word, a word is unknown (the message names the nearest known word), or a
            learning rate is not a number.
    """
    known = values["known"][field]
    words = [word.strip() for word in values[field].split(",") if word.strip()]
    if not words:
        raise ValueError(f"{field} is empty: some of {', '.join(known)}")
    labelled = imports.labelled(field, words)
    return {label: _meaning(field, word, known) for label, word in labelled.items()}


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
    """Returns the changes to a selector from a user's file, and to the settings that go with it."""
    changes = {"selector": {"name": name, "options": {}, "arrays": {}}}
    for path, value in samplers.find(name, field).goes_with.items():
        *sections, last = path.split(".")
        nested = {last: value}
        for section in reversed(sections):
            nested = {section: nested}
        changes = changed(changes, nested)
    return changes


def changed(values: Values, changes: Values) -> dict[str, Any]:
    """Returns nested values with `changes` applied."""
    both = dict(values)
    for name, new in changes.items():
        old = both.get(name)
        # A new selector starts without the options and arrays of the previous one.
        replaced = name == "selector" and new.get("name", old["name"]) != old["name"]
        nested = isinstance(new, Mapping) and isinstance(old, Mapping) and not replaced
        both[name] = changed(old, new) if nested else new
    return both
