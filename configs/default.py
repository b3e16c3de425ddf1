"""The default config: every field of vade_jax/settings.py with its default. Other configs change it.

A config is a ConfigDict only here and on the command line. `settings.Run.from_dict` checks it and turns it
into the typed, frozen settings that all other code takes.
"""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

from ml_collections import ConfigDict, FieldReference

import experiments.diva  # noqa: F401  the selector diva
from vade_jax import samplers, settings


def get_config() -> ConfigDict:
    """Returns the defaults, with VADE's options spelled out so that a command line can change them."""
    c = ConfigDict(settings.Run().to_dict())
    c.selector.options = _options(c.selector.name)
    return c


def _options(name: str) -> ConfigDict:
    """Returns a selector's hyperparameters, without G and the seed, which are settings of the run."""
    options = samplers.find(name).options().to_dict()
    return ConfigDict({x: options[x] for x in options if x not in ("num_rollouts", "seed")})


class _Op(NamedTuple):
    """An operation of ml_collections, which itself only has arithmetic."""

    fn: Callable[..., Any]
    args: list[FieldReference]


def follow(reference: FieldReference, function: Callable[[Any], Any]) -> FieldReference:
    """Returns a value that is `function` of another one, also of a later value, until it is set itself."""
    return FieldReference(
        function(reference.get()), op=_Op(lambda _, value: function(value), [reference])
    )


def built_in(c: ConfigDict, num_train: int, num_validation: int) -> None:
    """Sets the built-in data and their number of questions; of a user's file all rows are used."""
    for split, number in {"train": num_train, "validation": num_validation}.items():
        c.data[split] = "procedural"
        count = lambda path, number=number: number if path == "procedural" else 0
        c.data[f"num_{split}"] = follow(c.data.get_ref(split), count)


LOSSES = {
    "gspo": settings.GSPO,
    "grpo": settings.GRPO,
    "dapo": settings.DAPO,
    "dr_grpo": settings.DR_GRPO,
}


def loss(c: ConfigDict, name: str) -> None:
    """Sets the loss of a paper, one of `LOSSES`, and what else it changes.

    DAPO (arXiv 2503.14476) penalises answers in the last fifth of the length limit, even if the limit is set
    later. Its other part, dynamic sampling, is a selector: `selector(c, "dapo")`.
    """
    c.loss.update(LOSSES[name])
    if name == "dapo":
        c.reward.overlong_buffer = c.sampling.get_ref("max_tokens") // 5
    if name == "dr_grpo":
        c.scale_by_std = False


def selector(c: ConfigDict, name: str) -> None:
    """Sets another selector, with its default options and with the settings that go with it.

    Raises:
        ValueError: there is no such selector; the message names the nearest one.
    """
    spec = samplers.find(name, "selector")
    if name == c.selector.name:
        return
    for path in samplers.find(c.selector.name).goes_with:  # settings of the previous selector
        put(c, path, operator.attrgetter(path)(settings.Run()))
    c.selector.name = name
    c.selector.options = _options(name)
    for path, value in spec.goes_with.items():
        put(c, path, value)


def put(c: ConfigDict, path: str, value) -> None:
    """Sets the field with a dotted path."""
    section, _, name = path.rpartition(".")
    value = ConfigDict(dict(value)) if hasattr(value, "items") else value
    setattr(operator.attrgetter(section)(c) if section else c, name, value)
