"""Does a run fit, how fast is it here, and how fast are its parts beside their alternatives?

    python -m experiments.bench --suite=all
    python -m experiments.bench --suite=plan --config=configs/qwen7b_gspo.py --target=h200 --devices=4
    python -m experiments.bench --suite=device --config=configs/qwen3b_gspo.py:bf16,local

In each run all cases of a table take turns, so the ratios of one run are valid; times of different runs are
not comparable. Peers that are not installed are left out. `--json=FILE` writes the numbers.

Three suites measure one run, and need its --config:

- `plan` times nothing. It compiles the run's programs with the target's own compiler, which needs no such
  device. It prints the memory that they take on each device, what they send, and how long a step should take,
  and exits with 1 if the run does not fit. experiments/bench/plan.py lists its assumptions.
- `device` runs these programs on this machine's devices: seconds, memory, tokens a second, MFU.
- `peer` runs our update and decoding, then TRL's update and transformers' generate with the same shapes, on
  this machine.
"""

import sys

import jax
from absl import app, flags

from experiments import cli, errors, paths
from experiments.bench import core, device, peers, plan, targets, timing
from vade_jax import settings

SUITES = {
    "draws": core.draws,
    "selectors": core.selectors,
    "update": peers.updates,
    "decode": peers.decoding,
    "data": core.data,
    "verify": core.verdicts,
}
OF_A_RUN = ["plan", "device", "peer"]

SUITE = flags.DEFINE_enum("suite", "all", ["all", *OF_A_RUN, *SUITES], "What to measure.")
QUICK = flags.DEFINE_bool("quick", False, "Tiny shapes, to see that it runs.")
JSON = paths.define("json", None, "File for the numbers; written again after each table.")
TARGET = flags.DEFINE_string(
    "target",
    "h200",
    f"plan: one of {', '.join(targets.TARGETS)}.",
    allow_override=True,  # experiments.convert has a flag of the same name; one process may import both
)
DEVICES = flags.DEFINE_integer("devices", 1, "plan: devices that train.", 1)
PROGRAMS = flags.DEFINE_list(
    "programs",
    [],
    f"device: of {', '.join([*device.SHORT, device.SELECTOR])}; none: all there are.",
)


def main(_) -> None:
    """Runs a suite, or all of them; a suite of one run sets the exit code."""
    if SUITE.value in OF_A_RUN:
        sys.exit(of_a_run())
    names = SUITES if SUITE.value == "all" else [SUITE.value]
    timing.run({name: SUITES[name] for name in names}, QUICK.value, JSON.value)


def of_a_run() -> int:
    """Runs a suite for the run of --config; returns the exit code."""
    if cli.CONFIG.value is None:
        sys.exit(f"error: --suite={SUITE.value} needs --config, such as configs/qwen7b_gspo.py")
    values, rounds = cli.CONFIG.value.to_dict(), 1 if QUICK.value else 3
    with errors.user_errors():
        if SUITE.value == "plan":
            jax.config.update("jax_platforms", "cpu")
            described = targets.devices(TARGET.value, DEVICES.value)
            run = settings.Run.from_dict(values)
            report = plan.make(run, described, targets.find(TARGET.value))
            print(report.text)
            return 0 if report.fits else 1
        if SUITE.value == "device":
            device.run(values, PROGRAMS.value, rounds, JSON.value)
        else:
            peers.run(values, rounds, JSON.value)
    return 0


if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse)
