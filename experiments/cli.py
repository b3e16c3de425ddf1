"""The entry point of commands: flags for config and workdir, and one clear line for a user's mistake."""

import dataclasses
import difflib
import inspect
import os
import re
import sys
from collections.abc import Callable

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from configs import default
from experiments import paths
from experiments.errors import check_all_flags, disk_errors, user_errors
from vade_jax import fields, settings
from vade_jax.run import cluster

_OF_RUNS = ("train.py", "sweep.py", "supervise.py", "config.py")  # commands whose config is a run's
CONFIG = config_flags.DEFINE_config_file(
    "config",
    None,
    "configs/NAME.py[:argument,name=value]; run from the repository root.",
)
WORKDIR = paths.define(
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
            with user_errors():
                given = config()
            # Absolute, because a reward function may change the current directory.
            main(given, os.path.abspath(WORKDIR.value or default_workdir()))

    app.run(start, flags_parser=parse)


def config() -> ConfigDict | None:
    """Returns the config that the flags ask for; None without --config.

    `--config.selector.name=NAME` also sets what goes with that selector, as the word `selector=NAME` does.
    Otherwise the options of the config's own selector would stay. Its own name changes nothing.
    """
    if (found := CONFIG.value) is None:
        return None
    flag = flags.FLAGS["config"]
    given = config_flags.get_override_values(flag)
    if "selector.name" in given:
        own = flag.parser.parse(config_flags.get_config_filename(flag)).selector.name
        name, found.selector.name = found.selector.name, own
        default.selector(found, name)
        for path, value in given.items():
            default.put(found, path, value)
    return found


def default_workdir() -> str:
    """Returns runs/<name of the config file>_<its arguments>."""
    path = config_flags.get_config_filename(flags.FLAGS["config"])
    path, _, argument = path.partition(":")
    name = os.path.basename(path).removesuffix(".py")
    return os.path.join("runs", re.sub(r"\W+", "_", f"{name} {argument}".strip()))


def parse(argv):
    """Parses the flags; whatever a config file or an override raises becomes one line."""
    if {"-h", "-help", "--help"} & set(argv[1:]):
        print(help_text())
        sys.exit(0)
    try:
        # Changes sys.argv in place: ml_collections looks for overrides there.
        argv[:] = [re.sub("^(--?config=)(~.*)", _at_home, word, flags=re.DOTALL) for word in argv]
        rest = flags.FLAGS(argv)
        check_all_flags(rest)
        _check_file()
        return rest
    except (
        flags.Error,
        AttributeError,
        KeyError,
        ValueError,
        TypeError,
        OSError,
    ) as error:
        print(f"error: {_one_line(error)}", file=sys.stderr)
        sys.exit(2)


def help_text() -> str:
    """Returns the purpose of a command, its own flags, and where its settings are explained.

    absl's own help either leaves out the flags of this file or lists a hundred flags of other packages.
    """
    main = sys.modules["__main__"]
    own = (main.__file__ or "", __name__, "experiments.errors")
    by_module = flags.FLAGS.flags_by_module_dict()
    found = [
        flag
        for module in by_module
        if module in own or module == sys.argv[0]
        for flag in by_module[module]
    ]
    lines = [inspect.cleandoc(main.__doc__ or ""), "", "Flags:"]
    for flag in sorted(found, key=lambda flag: flag.name):
        value = "" if flag.default in (None, False, "") else f" (default {flag.default})"
        lines.append(f"  --{flag.name}: {flag.help}{value}")
    if os.path.basename(main.__file__ or "") not in _OF_RUNS:
        return "\n".join(
            [*lines, "", "The file that --config names says where its settings are explained."]
        )
    sections = [f for f in dataclasses.fields(settings.Run) if dataclasses.is_dataclass(f.type)]
    lines += ["", "Settings of a run, such as --config.optimizer.learning_rate=2e-6:"]
    for field in sections:
        lines.append(f"  {field.name:<12} {inspect.getdoc(field.type).splitlines()[0]}")
    lines += ["Each is explained by python -m experiments.config --config=FILE [--grep=WORD]."]
    return "\n".join(lines)


def _at_home(flag):
    return flag[1] + fields.at_home("--config", flag[2])


def _check_file():
    """Raises OSError if the config file is missing; ml_collections would raise only at its first use."""
    holder = flags.FLAGS["config"]
    path = config_flags.get_config_filename(holder) if holder.present else None
    if path is None:
        return
    path = path.partition(":")[0]
    if os.path.exists(path):
        return
    folder = os.path.dirname(path) or "."
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    close = difflib.get_close_matches(os.path.basename(path), names, 1)
    hint = f"did you mean {os.path.join(folder, close[0])}?" if close else "see configs/"
    raise OSError(f"--config={path} does not exist: {hint}")


def _one_line(error):
    """Returns an error as one line; the error of a config file comes wrapped in a traceback."""
    text = str(error)
    near = re.search(r'[Dd]id you mean "(\w+)" instead of "(\w+)"', text)
    if near or isinstance(error, KeyError | AttributeError):
        name, hint = (near[2], f': did you mean "{near[1]}"?') if near else (text.strip("\"'"), "")
        if name in fields.RENAMED:
            hint = f": it is called {fields.RENAMED[name]} now"
        # ml_collections looks for an option before the name of another selector is put in.
        elif any(word.startswith(f"--config.selector.options.{name}=") for word in sys.argv):
            hint += "; an option of another selector than the config's needs --config=FILE:selector=NAME"
        return f"the config has no field {name}{hint}"
    if "Traceback" in text:
        text = [line for line in text.splitlines() if line.strip()][-1]
        text = text.partition("Error: ")[2] or text
    return " ".join(text.split())
