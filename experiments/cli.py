"""The entry point of commands: flags for config and workdir, and one-line errors for users' mistakes."""

import gc
import os
import re
import sys
from collections.abc import Callable

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from configs import default
from experiments import commands
from experiments.errors import disk_errors, user_errors
from vade_jax.run import cluster

CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "configs/NAME.py[:argument,name=value]; run from the repository root. python -m experiments.config "
    "--config=FILE explains what a run's has.",
)
WORKDIR = flags.DEFINE_string(
    "workdir",
    None,
    "The run directory; an existing one is resumed. Default: runs/NAME_argument.",
)
DISTRIBUTED = flags.DEFINE_bool(
    "distributed", False, "Joins the processes that the cluster's environment describes."
)
COORDINATOR = flags.DEFINE_string(
    "coordinator_address", None, "HOST:PORT at which all processes reach process 0."
)
NUM_PROCESSES = flags.DEFINE_integer("num_processes", None, "Number of processes.")
PROCESS_ID = flags.DEFINE_integer("process_id", None, "Number of this process, from 0.")


def run(main: Callable[[ConfigDict, str], None]) -> None:
    """Parses the flags, joins the other processes and calls `main(config, workdir)`."""
    gc.freeze()  # what was imported stays: a tenth of tracing and compiling went into looking at it again

    def start(_):
        logging.set_verbosity(logging.WARNING)  # orbax logs every operation at INFO
        if CONFIG.value is None:
            sys.exit("error: --config is missing, such as --config=configs/tiny_gspo.py")
        with user_errors():
            cluster.join(
                COORDINATOR.value,
                NUM_PROCESSES.value,
                PROCESS_ID.value,
                distributed=DISTRIBUTED.value,
            )
        with cluster.ends_together(), disk_errors():
            # Absolute, because a reward function may change the current directory.
            main(config(), os.path.abspath(WORKDIR.value or default_workdir()))

    app.run(start, flags_parser=parse)


def config() -> ConfigDict | None:
    """Returns the config that the flags ask for; None without --config.

    `--config.selector.name=NAME` also sets the selector's run settings, like the word `selector=NAME`.
    Otherwise the options of the config's selector would stay. Naming the config's selector changes nothing.
    """
    if (c := CONFIG.value) is None:
        return None
    flag = flags.FLAGS["config"]
    overrides = config_flags.get_override_values(flag)
    if "selector.name" in overrides:
        own = flag.parser.parse(config_flags.get_config_filename(flag)).selector.name
        name, c.selector.name = c.selector.name, own
        with user_errors():
            default.selector(c, name)
        for path, value in overrides.items():
            default.put(c, path, value)
    return c


def default_workdir() -> str:
    """Returns runs/<name of the config file>_<its arguments>."""
    path = config_flags.get_config_filename(flags.FLAGS["config"])
    path, _, argument = path.partition(":")
    name = os.path.basename(path).removesuffix(".py")
    return os.path.join("runs", re.sub(r"\W+", "_", f"{name} {argument}".strip()))


def parse(argv: list[str]) -> list[str]:
    """Parses the flags and loads the config file."""
    for shared in (CONFIG, WORKDIR, DISTRIBUTED, COORDINATOR, NUM_PROCESSES, PROCESS_ID):
        flags.FLAGS.register_key_flag_for_module(argv[0], flags.FLAGS[shared.name])  # for its help
    rest = commands.parse(argv)
    with commands.mistakes():
        if CONFIG.value is not None:
            CONFIG.value.to_dict()  # raises if the file could not be loaded
    return rest
