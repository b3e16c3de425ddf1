"""Does a run fit, how fast is it here, and how fast are its parts next to their alternatives?

    python -m experiments.bench --suite=all
    python -m experiments.bench --suite=plan --config=configs/qwen7b_gspo.py --target=h200 --devices=4
    python -m experiments.bench --suite=device --config=configs/qwen3b_gspo.py:bf16,local

`core` is draws, selectors and data; `peers` is update and decode, without peers that are not
installed. The cases of a table take turns, so ratios within one run are valid; times of different runs are
not comparable.

Two suites are for one run and need its --config:

- `plan` times nothing. It compiles the run's programs with the target's compiler, which does not need the
  device, prints their memory per device, and exits with 1 if the run does not fit.
- `device` runs these programs on this machine's devices: seconds, memory, tokens a second, MFU.
"""

import functools
import sys

import jax
from absl import app, flags

from experiments import cli, errors
from experiments.bench import core, device, peers, plan, targets, timing
from experiments.bench.programs import DECODE, UPDATE
from vade_jax import settings

CORE = {"draws": core.draws, "selectors": core.selectors, "data": core.data}
PEERS = {name: functools.partial(peers.tables_of, name) for name in (UPDATE, DECODE)}
SUITES = {"all": CORE | PEERS, "core": CORE, "peers": PEERS}
SUITES |= {name: {name: suite} for name, suite in SUITES["all"].items()}

SUITE = flags.DEFINE_enum("suite", "all", ["plan", "device", *SUITES], "What to measure.")
QUICK = flags.DEFINE_bool("quick", False, "Tiny shapes, to see that it runs.")
TARGET = flags.DEFINE_enum("target", "h200", [*targets.TARGETS], "plan: the device.")
DEVICES = flags.DEFINE_integer("devices", 1, "plan: devices that train.", 1)
PROGRAMS = flags.DEFINE_list(
    "programs",
    [],
    f"device: of {', '.join([*device.CALLS, device.SELECTOR])}; none: all there are.",
)


def main(_) -> None:
    """Runs a suite, or all of them; a plan sets the exit code."""
    if SUITE.value in SUITES:
        timing.run(SUITES[SUITE.value], QUICK.value)
        return
    if cli.CONFIG.value is None:
        sys.exit(f"error: --suite={SUITE.value} needs --config, such as configs/qwen7b_gspo.py")
    values = cli.CONFIG.value.to_dict()
    with errors.user_errors():
        if SUITE.value == "device":
            device.run(values, PROGRAMS.value, 1 if QUICK.value else 3)
            return
        jax.config.update("jax_platforms", "cpu")
        described = targets.devices(TARGET.value, DEVICES.value)
        run = settings.Run.from_dict(values)
        report = plan.make(run, described, targets.TARGETS[TARGET.value])
        print(report.text)
        sys.exit(not report.fits)


if __name__ == "__main__":
    app.run(main, flags_parser=cli.parse)
