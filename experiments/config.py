"""Lists every setting of a run: its value, default, range and meaning.

    python -m experiments.config                                      # all of them
    python -m experiments.config --config=configs/tiny_gspo.py        # and what a config sets
    python -m experiments.config --grep=learning_rate

The meaning of a setting is the comment at its field in vade_jax/settings.py; that of a selector's option is
in the selector's file.
"""

import ast
import dataclasses
import inspect
import io
import math
import operator
import signal
import textwrap
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from absl import app, flags

import experiments.diva  # noqa: F401  the selector diva
from experiments import cli, errors
from vade_jax import fields, samplers, settings, tables

GREP = flags.DEFINE_string("grep", "", "Only settings with this word in their name or meaning.")
WIDTH = 110  # columns of a terminal


class Setting(NamedTuple):
    """One field of a run's settings."""

    path: str
    default: Any
    kind: str  # its type, words or range
    meaning: str


def main(_: Sequence[str]) -> None:
    """Prints the settings that the flags ask for."""
    run, config = None, cli.config()
    with errors.user_errors():
        if config is not None:
            values = config.get("run", config).to_dict()  # a sweep has its run's
            if "optimizer" not in values:
                raise ValueError(
                    "--config is not a run's: the file says where its settings are explained"
                )
            run = settings.Run.from_dict(values)
    word = GREP.value.lower()
    known = of_run(run.selector.name if run else "vade")
    shown = [x for x in known if word in f"{x.path} {x.meaning}".lower()]
    lines = [_line(setting, run) for setting in shown]
    print("\n".join(lines) or f"no setting has {GREP.value!r} in its name or meaning")


def _line(setting: Setting, run: settings.Run | None) -> str:
    default = now = _text(setting.default)
    section, _, name = setting.path.rpartition(".")
    if run is not None and section == "selector.options":
        now = _text(run.selector.options.get(name, setting.default))
    elif run is not None:
        now = _text(operator.attrgetter(setting.path)(run))
    value = now if now == default else f"{now} (default {default})"
    about = f"{setting.kind}. {setting.meaning}" if setting.meaning else setting.kind
    return "\n    ".join([f"{setting.path} = {value}", *textwrap.wrap(about, WIDTH - 4)])


# ------------------------------------------------------------------------------ the settings
def of_run(selector: str) -> Iterator[Setting]:
    """Yields every setting of a run with this selector, in the order of settings.py."""
    for setting in of_section(settings.Run):
        yield setting
        if setting.path == "selector.options":
            for option in of_section(samplers.find(selector).options, "selector.options."):
                if option.path.rpartition(".")[2] not in ("num_rollouts", "seed"):  # the run's
                    yield option


def of_section(section: type[fields.Section], path: str = "") -> Iterator[Setting]:
    """Yields the settings of a section, including those of its subsections."""
    meanings = comments(section)
    for field in dataclasses.fields(section):
        if isinstance(field.type, type) and issubclass(field.type, fields.Section):
            yield from of_section(field.type, f"{path}{field.name}.")
            continue
        has_factory = field.default_factory is not dataclasses.MISSING
        default = field.default_factory() if has_factory else field.default
        yield Setting(path + field.name, default, kind(field), meanings.get(field.name, ""))


def kind(field: dataclasses.Field) -> str:
    """Returns the words that a field allows, or its type and range."""
    if words := field.metadata.get("words"):
        return " or ".join(map(repr, words))
    name = getattr(field.type, "__name__", str(field.type)).lower().replace("str", "text")
    return f"{name}{_range(field.metadata.get('interval'))}"


def _range(interval: fields.Interval | None) -> str:
    """Returns an interval in words, such as " from 0 to 1"."""
    if interval is None or interval == fields.SEED:
        return ""
    low, high = interval.at_least, interval.at_most
    if low is not None and high is not None:
        return f" from {low:g} to {high:g}"
    bounds = {"at least": low, "above": interval.above, "at most": high, "below": interval.below}
    parts = [f"{word} {x:g}" for word, x in bounds.items() if x is not None and math.isfinite(x)]
    return " " + ", ".join(parts) if parts else ""


def comments(section: type) -> dict[str, str]:
    """Returns the comment of each field of a dataclass: the lines above it, and the end of its lines."""
    comments: dict[str, str] = {}
    for base in reversed(section.__mro__[:-1]):
        if dataclasses.is_dataclass(base) and base is not fields.Section:
            comments |= _comments_of(textwrap.dedent(inspect.getsource(base)))
    return comments


def _comments_of(source: str) -> dict[str, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comment = {x.start[0]: x.string.lstrip("# ") for x in tokens if x.type == tokenize.COMMENT}
    (definition,) = ast.parse(source).body
    taken, comments = {definition.lineno}, {}
    for node in definition.body:
        lines = range(node.lineno, node.end_lineno + 1)
        taken |= set(lines)
        if not isinstance(node, ast.AnnAssign):
            continue
        above = []
        while (line := lines.start - 1 - len(above)) in comment and line not in taken:
            above.insert(0, comment[line])
        at_end = [comment[line] for line in lines if line in comment]
        comments[node.target.id] = " ".join([*above, *at_end]).strip()
    return comments


# ------------------------------------------------------------------------------ the page
def page() -> str:
    """Returns the text of the site's page of settings."""
    sections: dict[str, list[Setting]] = {}
    for setting in of_run("vade"):
        sections.setdefault(setting.path.rpartition(".")[0], []).append(setting)
    parts = [
        "# Settings\n\nEvery setting of a run, from `vade_jax/settings.py`. A command line sets one by "
        "`--config.PATH=VALUE`,\nsuch as `--config.optimizer.learning_rate=2e-6`. 0 and an empty text mean none. "
        "`python -m experiments.config\n--config=FILE` shows what a config sets, `--grep=WORD` finds settings.\n"
    ]
    for name, inside in sections.items():
        rows = [
            [
                f"`{x.path.rpartition('.')[2]}`",
                f"`{_text(x.default)}`",
                *(x.replace("[", "\\[") for x in (x.kind.replace("'", "`"), x.meaning)),
            ]
            for x in inside
        ]
        table = tables.markdown(["setting", "default", "values", "meaning"], rows)
        parts.append(f"## {name or 'The run'}\n\n{_about(name)}{table}\n")
    return "\n".join(parts)


def _about(name: str) -> str:
    """Returns the first paragraph of the section's docstring."""
    section: Any = settings.Run
    if name == "selector.options":
        return "Of VADE; every selector's are in [the selectors](selectors.md).\n\n"
    for part in name.split(".") if name else ():
        section = next(f.type for f in dataclasses.fields(section) if f.name == part)
    return inspect.getdoc(section).split("\n\n")[0].replace("\n", " ") + "\n\n" if name else ""


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(dict(value))
    return f"{value:g}" if isinstance(value, float) else repr(value)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it without a traceback
    app.run(main, flags_parser=cli.parse)
