r"""Teaches a policy right answers before RL: writes a model directory, which `model.checkpoint` takes.

    python -m experiments.supervise --config=configs/my_data.py --directory=runs/taught --lessons.num_steps=80
    python -m experiments.train --config=configs/my_data.py --workdir=runs/mine \
        --config.model.preset= --config.model.checkpoint=runs/taught

The config is the run's, and `Lessons` in experiments/warm_start.py explains --lessons. DIRECTORY.start/ keeps
the inputs of the model: config.json, a tiny preset, the list of rejected rows. A stopped command starts from
the beginning.
"""

import json
import os
import pathlib

from absl import flags
from ml_collections import ConfigDict, config_flags

from experiments import cli, hooks, warm_start
from experiments.errors import user_errors
from vade_jax import atomic, settings
from vade_jax.data import loading
from vade_jax.run import build, checks, cluster, compiled, datasets, gpus
from vade_jax.store import run_file
from vade_jax.trainer import processes


def main(config: ConfigDict, directory: str, lessons: ConfigDict) -> None:
    """Makes the model directory unless it exists."""
    directory = os.path.abspath(directory)
    start = f"{directory}.start"
    with user_errors():
        run = settings.Run.from_dict(config.to_dict())
        taught = warm_start.Lessons.from_dict(lessons.to_dict())
        if not taught.num_steps:
            raise ValueError("lessons.num_steps=0: give the steps, such as --lessons.num_steps=80")
        checks.check(run, hooks.ALL)
        gpus.take(run.layout)
        cluster.only_leader_prints()
        processes.on_leader(lambda: os.makedirs(start, exist_ok=True))
        compiled.keep()
        base = build.checkpoint_of(run, start)
        rows = _rows(run, base, start) if taught.are_rows(run) else None
        decisive = {name: run.to_dict()[name] for name in ("seed", "model", "lora", "data")}
        decisive |= {"form": run.reward.format, "lessons": taught.to_dict()}
        decisive |= {"rows": rows and rows.checksum}
        if processes.on_leader(lambda: _is_made(directory, decisive)):
            print(f"{directory} is there already")
        else:
            warm_start.teach(run, taught, base, directory, rows)
            print("in", directory)


def _is_made(directory: str, decisive: dict) -> bool:
    """Returns whether the model exists; if not, writes the settings that determine its weights."""
    path, text = pathlib.Path(f"{directory}.start", "config.json"), json.dumps(decisive, indent=2)
    if not os.path.exists(os.path.join(directory, "config.json")):
        atomic.write_text(path, text)
        return False
    if other := run_file.differences(json.loads(path.read_text()), json.loads(text)):
        raise ValueError(
            f"{directory} was made with other settings ({'; '.join(other)}): give another"
        )
    return True


def _rows(run: settings.Run, base: str, start: str) -> warm_start.Rows:
    """Returns the training rows with an answer short enough for a run."""
    limit = run.sampling.max_tokens
    with loading.threads(run.data.num_threads) as threads:
        options = {"seed": run.seed, "reward": run.reward}
        train = datasets.load(run.data, base, start, threads, **options).train
    rows = train.teachable(limit)
    print(f"{len(rows):,} of {len(train):,} rows have an answer of up to {limit} tokens")
    if not len(rows):
        raise ValueError(f"sampling.max_tokens={limit} cuts the answers of all rows: raise it")
    return rows


if __name__ == "__main__":
    DIRECTORY = flags.DEFINE_string("directory", None, "A directory for the model.", required=True)
    LESSONS = config_flags.DEFINE_config_dict(
        "lessons", ConfigDict(warm_start.Lessons().to_dict()), "What is taught."
    )
    cli.run(lambda config, _: main(config, DIRECTORY.value, LESSONS.value))
