"""The runs of a sweep: the directory and the settings of each, and whether it is finished."""

import dataclasses
import itertools
import json
import os
from collections.abc import Mapping

from ml_collections import ConfigDict

from configs import arms
from experiments import hooks
from vade_jax import atomic, fields, imports, samplers, settings
from vade_jax.run import checks, directory, job
from vade_jax.store import run_file


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

    def write_config(self) -> str:
        """Writes the config next to the run's directory; returns the value of --config that reads it."""
        path = self.directory + ".json"
        atomic.write_text(path, json.dumps(self.settings.to_dict(), indent=2) + "\n")
        return f"configs/from_json.py:{path}"


def planned(c: ConfigDict, workdir: str) -> list[PlannedRun]:
    """Returns the runs of a sweep's config in the order they are made: all of one seed before the next.

    Raises:
        ValueError: the config is of a single run, a word is unknown, settings cannot run, or a finished
            run has other settings.
    """
    if "known" not in c:
        raise ValueError(
            "--config is of one run: give a sweep, such as configs/sweep.py or "
            "configs/sweep.py:base=FILE"
        )
    data, losses, selectors = (chosen(c, name) for name in ("data", "losses", "arms"))
    # The baseline must be known, but need not be among the chosen arms.
    _change("baseline", c.baseline, c.known.arms)
    try:
        seeds = dict.fromkeys(int(word) for word in c.seeds.split(","))
    except ValueError:
        raise ValueError(f"seeds={c.seeds!r}: numbers with commas between") from None
    _check_shared(c.run)
    runs = []
    for seed, source, loss, arm in itertools.product(seeds, data, losses, selectors):
        name = f"{source}/{loss}/{arm}_seed{seed}"
        run = arms.changed(c.run, data[source], losses[loss], selectors[arm])
        run.seed = seed
        # Runs with the same seed share their warm start: nothing that it depends on differs between them.
        run.warm_start.directory = os.path.join(workdir, f"warm_start_seed{seed}")
        try:
            checked = settings.Run.from_dict(run.to_dict())
            checks.check(checked, hooks.ALL)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        runs.append(PlannedRun(f"{source}/{loss}", arm, checked, os.path.join(workdir, name)))
    for run in runs:
        if run.is_finished():  # it is not started again, so its config is compared only here
            now = fields.replaced(run.settings, directory.pinned(run.settings, run.directory))
            then = run_file.settings_of(run.directory)
            if others := run_file.differences(then, now.to_dict(), directory.MAY_DIFFER):
                raise ValueError(
                    f"{run.directory} is of other settings ({'; '.join(others)}): give another --workdir or the old "
                    "values"
                )
    return runs


def _check_shared(run: ConfigDict) -> None:
    """Raises ValueError if the shared settings have a seed or a warm start: a sweep sets both itself."""
    if run.seed:
        raise ValueError(f"run.seed={run.seed}: a sweep has seeds, such as --config.seeds=0,1")
    if start := run.warm_start.directory:
        raise ValueError(
            f"run.warm_start.directory={start!r}: a sweep makes a warm start for each seed; train from one of "
            "your own by run.model.checkpoint, with run.warm_start.num_steps=0"
        )


def pinned(runs: list[PlannedRun]) -> list[PlannedRun]:
    """Returns the runs with one commit for each name on the hub: that of a run that has begun, if any has.

    Raises:
        ValueError: a name is unknown, or the hub cannot be reached.
    """
    on_hub = lambda run: tuple(fields.value(run.settings, name) for name in directory.ON_HUB)
    begun = [run for run in runs if run_file.read(run.directory)]
    pinned_names, made = {}, []
    for run in runs:
        if (names := on_hub(run)) not in pinned_names:
            # Prefers a begun run with the same names. Otherwise any begun run helps: a new arm may share
            # its model and have other data.
            like = next((other for other in begun if on_hub(other) == names), [*begun, run][0])
            pinned_names[names] = directory.pinned(run.settings, like.directory)
        settings_ = fields.replaced(run.settings, pinned_names[names])
        made.append(dataclasses.replace(run, settings=settings_))
    return made


def chosen(c: ConfigDict, field: str) -> dict[str, arms.Change]:
    """Returns what the words of a field change; a repeated word counts once.

    An arm may have its own learning rate: `vade@5e-5`. Selectors differ in the largest rate that they
    tolerate, so a comparison at a single rate says little.

    Raises:
        ValueError: there is no word, a word is unknown (the message names the nearest known word), or a
            learning rate is not a number.
    """
    known = c.known[field]
    words = [word.strip() for word in c[field].split(",") if word.strip()]
    if not words:
        raise ValueError(f"{field} is empty: some of {', '.join(known)}")
    labelled = imports.labelled(field, words)
    return {label: _change(field, word, known) for label, word in labelled.items()}


def _change(field: str, word: str, known: Mapping[str, arms.Change]) -> arms.Change:
    """Returns what a word changes; see `chosen`."""
    is_arm = field in ("arms", "baseline")
    name, at, rate = word.partition("@") if is_arm else (word, "", "")
    if is_arm and ":" in name:
        samplers.find(name, field)  # its error names the field
        change = arms.selector(name)
    else:
        fields.check_word(field, name, known)
        change = known[name]
    if not at:
        return change
    try:
        learning_rate = float(rate)
    except ValueError:
        raise ValueError(f"{field}={word!r}: a learning rate after the @, such as 5e-5") from None

    def with_rate(run: ConfigDict) -> None:
        change(run)
        run.optimizer.learning_rate = learning_rate

    return with_rate
