"""The runs of a sweep: the directory and the settings of each, and whether it is finished."""

import dataclasses
import itertools
import json
import os
from collections.abc import Mapping

from ml_collections import ConfigDict

from configs import arms
from experiments import hooks
from experiments.warm_start import Lessons
from vade_jax import atomic, fields, imports, samplers, settings
from vade_jax.run import checks, directory
from vade_jax.store import run_file


@dataclasses.dataclass(frozen=True)
class Planned:
    """What a program makes from settings; its config and log are next to the directory."""

    settings: settings.Run
    directory: str

    @property
    def log(self) -> str:
        return self.directory + ".log"

    def write_config(self) -> str:
        """Writes the config next to the directory; returns the value of --config that reads it."""
        path = self.directory + ".json"
        atomic.write_text(path, json.dumps(self.settings.to_dict(), indent=2) + "\n")
        return f"configs/from_json.py:{path}"


@dataclasses.dataclass(frozen=True)
class WarmStart(Planned):
    """The model that all runs of a seed start from, in {workdir}/warm_start_seed{seed}."""

    lessons: Lessons


@dataclasses.dataclass(frozen=True)
class PlannedRun(Planned):
    """One run, in {workdir}/{data}/{loss}/{arm}_seed{seed}."""

    group: str  # data/loss
    arm: str
    start: WarmStart | None  # None: nothing is taught

    @property
    def seed(self) -> int:
        return self.settings.seed

    @property
    def name(self) -> str:
        return f"{self.group}/{self.arm}_seed{self.seed}"

    def is_finished(self) -> bool:
        """Returns whether the run is finished, see `directory.is_done`."""
        return directory.is_done(self.settings, self.directory)


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
    if c.run.seed:
        raise ValueError(f"run.seed={c.run.seed}: a sweep has seeds, such as --config.seeds=0,1")
    lessons, runs = Lessons.from_dict(c.lessons.to_dict()), []
    starts = {seed: _start(c.run, seed, lessons, workdir) for seed in seeds}
    for seed, source, loss, arm in itertools.product(seeds, data, losses, selectors):
        name = f"{source}/{loss}/{arm}_seed{seed}"
        run = arms.changed(c.run, data[source], losses[loss], selectors[arm])
        run.seed = seed
        if start := starts[seed]:
            run.model.preset, run.model.checkpoint = "", start.directory
        try:
            checked = settings.Run.from_dict(run.to_dict())
            checks.check(checked, hooks.ALL)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
        directory_ = os.path.join(workdir, name)
        runs.append(PlannedRun(checked, directory_, f"{source}/{loss}", arm, start))
    for run in runs:
        if run.is_finished():  # it is not started again, so its config is compared only here
            # If a sweep was moved, its warm starts have other paths.
            may_differ = (*directory.MAY_DIFFER, *(("model.checkpoint",) if run.start else ()))
            then = run_file.settings_of(run.directory)
            if others := run_file.differences(then, run.settings.to_dict(), may_differ):
                raise ValueError(
                    f"{run.directory} has other settings ({'; '.join(others)}): give another --workdir or the old "
                    "values"
                )
    return runs


def _start(run: ConfigDict, seed: int, lessons: Lessons, workdir: str) -> WarmStart | None:
    """Returns the warm start of a seed, for all arms, losses and data; None without lessons."""
    if not lessons.num_steps:
        return None
    taught = arms.changed(run)
    taught.seed = seed
    if lessons.are_rows(settings.Run.from_dict(taught.to_dict())):  # not only those that RL asks
        taught.data.num_train = lessons.num_steps * lessons.batch_size
    of_seed, directory_ = settings.Run.from_dict(taught.to_dict()), f"warm_start_seed{seed}"
    lessons.mixed(of_seed)
    return WarmStart(of_seed, os.path.join(workdir, directory_), lessons)


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
    return {imports.label(word): _change(field, word, known) for word in words}


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
