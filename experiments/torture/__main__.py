"""Kills a run, damages its files or fills its disk, restarts it, and compares the result bit for bit.

    python -m experiments.torture --config=configs/torture.py --kills=100 --workdir=runs/torture
    python -m experiments.torture --config=configs/torture.py:selector=dapo --kills=20

The job first runs once without a fault. Then each trial starts it, causes one fault, drawn from `--seed` and
the trial's number, restarts it until it ends, and compares all metrics except times, all answers, and the
bytes of the policy. A trial passes if they are equal bit for bit, or if a one-line error names the damaged
file. WORKDIR holds the reference, trials.jsonl, table.md, and the directories of the trials that failed;
another seed adds other trials to it.
"""

import collections
import json
import pathlib
import sys

from absl import flags, logging
from ml_collections import ConfigDict, config_flags

from experiments import cli, errors
from experiments.torture import campaign, faults
from vade_jax import atomic, tables


def main(_: ConfigDict, workdir: str) -> None:
    """Makes the trials, and prints the table of all trials in WORKDIR."""
    logging.set_verbosity(logging.ERROR)
    place = pathlib.Path(workdir).absolute()
    flag = flags.FLAGS["config"]
    changed = config_flags.get_override_values(flag).items()
    config = [f"--config={config_flags.get_config_filename(flag)}"]
    config += [f"--config.{field}={value}" for field, value in changed]
    command, log = campaign.train(config, place / "compiled"), place / "trials.jsonl"
    with errors.user_errors((RuntimeError, OSError)):  # a wrong config fails without a fault too
        known = campaign.reference(command, place / "reference")

    def trial(number: int) -> bool:
        fault = faults.draw(SEED.value, number)
        root = place / f"trial_{fault.seed}_{number}"
        result, why = campaign.trial(command, fault, known, root)
        with log.open("a") as file:
            print(f"{fault}: {result}{why and ': ' + why}", flush=True)
            file.write(json.dumps({**fault._asdict(), "result": result, "why": why}) + "\n")
        return result != campaign.FAILED

    passed = [trial(number) for number in range(KILLS.value)]
    trials = [json.loads(line) for line in log.read_text().splitlines()]
    columns = (campaign.EQUAL, campaign.NAMED, campaign.FAILED)
    rows = []
    for kind in faults.KINDS:
        counts = collections.Counter(x["result"] for x in trials if x["kind"] == kind)
        rows.append([kind, str(counts.total()), *[str(counts[x]) for x in columns]])
    table = tables.markdown(["fault", "trials", *columns], rows)
    atomic.write_text(place / "table.md", table + "\n")
    print(f"\n{table}\n\n{sum(passed)} of {len(passed)} trials ended well")
    sys.exit(not all(passed))


if __name__ == "__main__":
    KILLS = flags.DEFINE_integer("kills", 20, "Trials.", 1)
    SEED = flags.DEFINE_integer("seed", 0, "Seed of the faults.", 0)
    cli.run(main)
