"""Trains a policy with group RL: the one entry point, from a laptop to a cluster.

    python -m experiments.train --config=configs/tiny_gspo.py --workdir=runs/tiny_gspo

An existing workdir is resumed. The training loop is in vade_jax/trainer/loop.py, the settings are in
vade_jax/settings.py, and vade_jax/run/job.py builds the loop from the settings.
"""

import sys
import time

from ml_collections import ConfigDict

from experiments import cli, hooks
from experiments.errors import AGAIN, end_with, user_errors
from vade_jax import run, settings
from vade_jax.data.columns import RejectedItem
from vade_jax.report import headline
from vade_jax.rewards.functions import RewardFailure
from vade_jax.rollout.engine import EngineFailure, EngineLost
from vade_jax.run.cluster import StopSignal
from vade_jax.store import metrics
from vade_jax.trainer import processes
from vade_jax.trainer.scoring import NotFinite


def main(config: ConfigDict, workdir: str) -> None:
    """Runs or resumes the job in `workdir`, and prints a summary."""
    with user_errors():
        job = settings.Run.from_dict(config.to_dict())
    start = time.perf_counter()
    try:
        with user_errors((run.UserError,)):
            is_done = run.train(job, workdir, hooks=hooks.ALL, stop=StopSignal())
    except KeyboardInterrupt:  # the second one: see `StopSignal`
        sys.exit("error: stopped at once; the same command continues after the last save")
    except EngineLost as error:
        end_with(f"error: {error}; all steps are saved, the same command continues", AGAIN)
    except (NotFinite, EngineFailure, RewardFailure) as error:
        sys.exit(f"error: {error}")
    except RejectedItem as error:
        sys.exit(f"error: {error}; all steps are saved: restore the row's files, and run again")
    if not is_done:
        return  # stopped: a second start resumes
    print(f"finished in {time.perf_counter() - start:.0f} s")
    if processes.is_leader():
        print(headline.summary(metrics.read(workdir), workdir=workdir))


if __name__ == "__main__":
    cli.run(main)
