"""The entry point of commands: flags for config and workdir, and one clear line for a user's mistake."""

import dataclasses
import difflib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Mapping

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from configs import default
from experiments import commands, paths
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
    if commands.HELP & set(argv[1:]):
        print(help_text())
        sys.exit(0)
    try:
        # Changes sys.argv in place: ml_collections looks for overrides there.
        argv[:] = [re.sub("^(--?config=)(~.*)", _at_home, word, flags=re.DOTALL) for word in argv]
        rest = flags.FLAGS(argv)
        check_all_flags(rest)
        _check_file()
        return rest
    except Exception as error:  # a config file is code, which may raise anything
        print(f"error: {_one_line(error)}", file=sys.stderr)
        sys.exit(2)


def help_text() -> str:
    """Returns the purpose of a command, its own flags, and where its settings are explained."""
    lines = [commands.help_text(__name__), ""]
    if os.path.basename(sys.modules["__main__"].__file__ or "") not in _OF_RUNS:
        return "\n".join(
            [*lines, "The file that --config names says where its settings are explained."]
        )
    sections = [f for f in dataclasses.fields(settings.Run) if dataclasses.is_dataclass(f.type)]
    lines += ["Settings of a run, such as --config.optimizer.learning_rate=2e-6:"]
    for field in sections:
        lines.append(f"  {field.name:<12} {inspect.getdoc(field.type).splitlines()[0]}")
    lines += ["Each is explained by python -m experiments.config --config=FILE [--grep=WORD]."]
    return "\n".join(lines)


def _place_in_config(error):
    """Returns the file and line of --config that an error came from; "" if it came from elsewhere."""
    given = [re.match("--?config=([^:]*)", word) for word in sys.argv]
    files = [os.path.abspath(found[1]) for found in given if found]
    frames = traceback.extract_tb(error.__traceback__)
    found = [frame for frame in frames if os.path.abspath(frame.filename) in files]
    return f"{found[-1].filename}, line {found[-1].lineno}" if found else ""


def _mapping_of(name):
    """Returns the mapping field that an override wants to change at the key `name`; "" if there is none."""
    for word in sys.argv:
        path = re.match(rf"--config\.([\w.]+)\.{re.escape(name)}=", word)
        try:
            if path and isinstance(fields.value(settings.Run(), path[1]), Mapping):
                return path[1]
        except AttributeError:  # another command's config
            continue
    return ""


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
        if not os.path.isfile(path):
            raise OSError(
                f"--config={path} is a directory: name a file in it, such as configs/tiny_gspo.py"
            )
        if not isinstance(CONFIG.value, ConfigDict):
            found = type(CONFIG.value).__name__
            raise TypeError(f"--config={path}: get_config returned a {found}, not a ConfigDict")
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
    field = text.strip("\"'")
    where = _place_in_config(error)
    is_lookup = isinstance(error, KeyError | AttributeError) and re.fullmatch(r"\w+", field)
    if near or (is_lookup and not where):
        name, hint = (near[2], f': did you mean "{near[1]}"?') if near else (field, "")
        # ml_collections looks for an option before the name of another selector is put in.
        if any(word.startswith(f"--config.selector.options.{name}=") for word in sys.argv):
            hint += "; an option of another selector than the config's needs --config=FILE:selector=NAME"
        elif mapping := _mapping_of(name):
            hint = f": give the mapping whole, --config.{mapping}=\"{{'{name}': VALUE}}\""
        return f"the config has no field {name}{hint}"
    if isinstance(error, SyntaxError):
        text = f"{error.filename}, line {error.lineno}: {error.msg}"
    elif "has no attribute 'get_config'" in text:
        text = "--config: the file has no function get_config: name one of configs/, such as configs/tiny_gspo.py"
    elif where and not isinstance(error, ValueError):  # a mistake in the file's own code
        text = f"{where}: {type(error).__name__}{text and ': ' + text}"
    elif "earlier failure to load: " in text:
        text = "--config: " + text.partition("earlier failure to load: ")[2]
    if "Traceback" in text:
        text = [line for line in text.splitlines() if line.strip()][-1]
        text = text.partition("Error: ")[2] or text
    return " ".join(text.split())
