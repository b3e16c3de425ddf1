"""Makes the supervised warm start of a run, and nothing else.

    python -m experiments.supervise --config=configs/my_data.py --workdir=runs/taught \
        --config.data.train=rows.jsonl --config.warm_start.num_steps=80

Writes a Hugging Face checkpoint into <workdir>/warm_start, which `model.checkpoint` takes: see
vade_jax/run/warm_start.py.
"""

import sys

from ml_collections import ConfigDict

from experiments import cli, hooks
from experiments.errors import user_errors
from vade_jax import settings
from vade_jax.data import loading
from vade_jax.run import build, checks, compiled, directory, job, warm_start
from vade_jax.run.cluster import StopSignal
from vade_jax.trainer.scoring import NotFinite


def main(config: ConfigDict, workdir: str) -> None:
    """Makes the warm start that the config asks for."""
    with user_errors():
        run = settings.Run.from_dict(config.to_dict())
    with user_errors((checks.UserError,)), job.opened(run, workdir, hooks.ALL) as (run, workdir):
        with user_errors():
            if not run.warm_start.num_steps:
                raise ValueError("warm_start.num_steps=0: set it to the supervised steps to take")
            compiled.keep(run.perf, workdir)
            base = warm_start.untrained(run, workdir)
            checks.model.check_model(run, base)
            rows = None
            if run.teaches_rows:
                with loading.Threads(run.data.num_threads) as threads:
                    data = build.load_data(run, base, workdir, threads.stream)
                checks.data.check_data(run, data)
                rows = data.train
            directory.begin(run.to_dict(), workdir)
        try:
            with user_errors((checks.UserError,)):
                made = warm_start.warm_started(run, base, workdir, StopSignal(), rows)
        except KeyboardInterrupt:  # the second one: see `StopSignal`
            sys.exit("error: stopped at once; the same command goes on after the last save")
        except NotFinite as error:
            sys.exit(f"error: {error}")
    if made is not None:
        print("in", made)


if __name__ == "__main__":
    cli.run(main)
