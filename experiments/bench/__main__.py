"""Measures selectors, update, decoding, data and rewards, against alternatives and lower bounds (floors).

    python -m experiments.bench --suite=all
    python -m experiments.bench --suite=plan --config=configs/qwen7b_gspo.py --target=h200 --devices=4
    python -m experiments.bench --suite=device --config=configs/qwen3b_gspo.py:bf16,local

In each run all cases take turns, so the ratios of one run are valid; times of different runs are not
comparable. After `pip install trl==1.16.0`, TRL's own GRPO update is measured too. `--json=FILE` writes the
numbers.

`long` takes some minutes: it measures what a run costs its host over 10,000 steps, and with 1,000,000 items.
`all` leaves it out.

Four suites measure one run, and need its --config:

- `plan` times nothing. It compiles the run's programs with the target's own compiler, which needs no such
  device. It prints the memory that they take on each device, what they send, and how long a step should take,
  and exits with 1 if the run does not fit. experiments/bench/plan.py lists its assumptions.
- `device` runs these programs on this machine's devices: seconds, memory, tokens a second, MFU.
- `parity` compares log-probs with transformers, and gradients between our attention kernels, on this machine.
- `peer` runs our update and decoding, then TRL's update and transformers' generate with the same shapes, on
  this machine.
"""

import os
import sys

import jax
from absl import app, flags

from experiments import cli, errors, paths
from experiments.bench import (
    decode,
    device,
    families,
    host,
    long,
    overlap,
    parity,
    peer,
    plan,
    selectors,
    targets,
    timing,
    update,
)
from vade_jax import settings

SUITES = {
    "draws": selectors.draws,  # draws from a Beta posterior and VADE's proposal, compared with numpy
    "selectors": selectors.steps,
    "update": update.run,
    "families": families.run,
    "decode": decode.run,
    "data": host.images,
    "verify": host.verdicts,
    "overlap": overlap.run,  # steps with engine.max_lag, beside perfect overlap
    "long": long.run,
}

OF_A_RUN = ["plan", "device", "parity", "peer"]

SUITE = flags.DEFINE_enum("suite", "all", ["all", *OF_A_RUN, *SUITES], "What to measure.")
QUICK = flags.DEFINE_bool("quick", False, "Tiny shapes, to see that it runs.")
JSON = paths.define("json", None, "File for the rows; written again after each table.")
TARGET = flags.DEFINE_string(
    "target",
    "h200",
    f"plan: one of {', '.join(targets.TARGETS)}.",
    allow_override=True,  # experiments.convert has a flag of the same name; one process may import both
)
DEVICES = flags.DEFINE_integer("devices", 1, "plan: devices that train.", 1)
MFU = flags.DEFINE_float("mfu", 0.4, "plan: the share of the devices' peak FLOP/s that is reached.")
flags.register_validator("mfu", lambda share: 0 < share <= 1, "must be above 0 and at most 1")
VLLM = flags.DEFINE_float(
    "vllm_fraction", None, "plan: vLLM's share of a device; none: the config's."
)
PROGRAMS = flags.DEFINE_list(
    "programs", [], f"device: of {', '.join(device.SHORT)}; none: all that the run has."
)


def main(_) -> None:
    """Runs a suite, or all of them; a suite of one run sets the exit code."""
    if SUITE.value in OF_A_RUN:
        sys.exit(of_a_run())
    # `long` takes minutes, and measures nothing that is compared with the other suites.
    names = [name for name in SUITES if name != "long"] if SUITE.value == "all" else [SUITE.value]
    timing.run({name: SUITES[name] for name in names}, QUICK.value, JSON.value)


def of_a_run() -> int:
    """Runs a suite for the run of --config; returns the exit code."""
    if cli.CONFIG.value is None:
        sys.exit(f"error: --suite={SUITE.value} needs --config, such as configs/qwen7b_gspo.py")
    values, rounds = cli.CONFIG.value.to_dict(), 1 if QUICK.value else 3
    if SUITE.value == "parity":
        # Torch runs in the same process, so JAX must not reserve the device's memory in advance. Elsewhere it
        # should: memory that grows piece by piece had no room for an update of the 3B on an H100.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with errors.user_errors():
        if SUITE.value == "plan":
            return print_plan(settings.Run.from_dict(values))
        if SUITE.value == "device":
            device.run(values, PROGRAMS.value, rounds, JSON.value)
        elif SUITE.value == "parity":
            parity.run(values, JSON.value)
        else:
            peer.run(values, rounds, JSON.value)
    return 0


def print_plan(run: settings.Run) -> int:
    """Prints the plan of a run; returns the exit code, 1 if the run does not fit."""
    jax.config.update("jax_platforms", "cpu")
    assumed = plan.Device(targets.find(TARGET.value), mfu=MFU.value, vllm_fraction=VLLM.value)
    report = plan.make(run, targets.devices(TARGET.value, DEVICES.value), assumed)
    print(report.text)
    return 0 if report.fits else 1


if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse)
