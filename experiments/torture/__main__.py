r"""Kills a job, damages its files or fills its disk: does a restarted job end as if nothing had happened?

    python -m experiments.torture --config=configs/torture.py --kills=100 --workdir=runs/torture
    python -m experiments.torture --config=configs/torture.py:selector=dapo --kills=20
    python -m experiments.torture --config=configs/torture.py --kills=20 --processes=2
    python -m experiments.torture --command=simulate --config=configs/simulate.py:smoke --kills=20
    python -m experiments.torture --command=sweep --config=configs/sweep.py:smoke --kills=20 \
        --config.arms=uniform,vade --config.losses=gspo --config.seeds=0
    python -m experiments.torture --command=build_data --config=configs/vade_9k.py --kills=20 -- \
        --source=DIR --checkpoint=DIR
    python -m experiments.torture --command=evaluate --config=configs/eval_paper.py --kills=20 -- \
        --checkpoint=runs/tiny_gspo --config.benchmarks.chartqa=chartqa.parquet --rules

The job first runs once without a fault. Then each trial starts it, causes one fault, drawn from `--seed` and
the trial's number, restarts the job until it ends, and compares what it left: every metric except those of
the clock, every answer, weight and counter. A trial passes if all of them are equal to the bit, or if one
line of error names the file that was damaged. Anything else is a failure, printed with the flags that repeat
it. Arguments after `--` go to the command unchanged. WORKDIR holds the reference, trials.jsonl, table.md, and
the directories of the trials that failed. Another `--first` adds other trials to the same WORKDIR.
"""

import concurrent.futures
import json
import pathlib
import sys
import threading

from absl import flags, logging
from ml_collections import ConfigDict, config_flags

from experiments import cli, errors
from experiments.torture import campaign, faults, jobs
from vade_jax import atomic


def main(_: ConfigDict, workdir: str) -> None:
    """Makes the trials, and prints the table of all trials in WORKDIR."""
    logging.set_verbosity(logging.ERROR)  # silences orbax on the checkpoints that are compared
    place = pathlib.Path(workdir).absolute()
    path = config_flags.get_config_filename(flags.FLAGS["config"])
    changed = config_flags.get_override_values(flags.FLAGS["config"])
    overrides = [f"--config.{field}={value}" for field, value in changed.items()]
    arguments = [f"--config={path}", *overrides, *REST]
    compiled = str(place / "compiled")
    with errors.user_errors():
        job = jobs.Job(COMMAND.value, arguments, PROCESSES.value, compiled)
        kinds = campaign.kinds(job, FAULTS.value)
    log, lock = place / "trials.jsonl", threading.Lock()
    with errors.user_errors((RuntimeError, OSError)):  # a wrong command fails without a fault too
        place.mkdir(parents=True, exist_ok=True)
        known = campaign.reference(job, place)

    def trial(number: int) -> bool:
        fault = faults.draw(SEED.value, number, kinds, [*job.moments])
        outcome = campaign.trial(job, fault, known, place / f"trial_{SEED.value}_{number}")
        with lock, log.open("a") as file:
            print(outcome, flush=True)
            file.write(json.dumps(campaign.record(str(job), outcome)) + "\n")
        return outcome.result != campaign.FAILED

    numbers = range(FIRST.value, FIRST.value + KILLS.value)
    with concurrent.futures.ThreadPoolExecutor(PARALLEL.value) as executor:
        passed = list(executor.map(trial, numbers))
    table = campaign.table(map(json.loads, log.read_text().splitlines()))
    atomic.write_text(place / "table.md", table + "\n")
    print(f"\n{table}\n\n{sum(passed)} of {len(passed)} trials ended well")
    sys.exit(not all(passed))


if __name__ == "__main__":
    COMMAND = flags.DEFINE_enum("command", "train", jobs.COMMANDS, "The command under test.")
    KILLS = flags.DEFINE_integer("kills", 20, "Trials.", 1)
    SEED = flags.DEFINE_integer("seed", 0, "Seed of the faults.", 0)
    FIRST = flags.DEFINE_integer("first", 0, "The number of the first trial.", 0)
    FAULTS = flags.DEFINE_string(
        "faults", "", "Kinds of faults, separated by commas; default: all."
    )
    PROCESSES = flags.DEFINE_integer("processes", 1, "Processes that train one run together.", 1)
    PARALLEL = flags.DEFINE_integer("parallel", 1, "Trials at a time.", 1)
    # Arguments after -- are for the command. absl knows only our own flags, so it must not see them.
    own = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    REST, sys.argv = sys.argv[own + 1 :], sys.argv[:own]
    cli.run(main)
