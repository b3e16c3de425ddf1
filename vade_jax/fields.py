"""Typed, checked settings: frozen dataclasses whose fields define their own ranges.

A `Section` checks every field when it is made, so a typo or an impossible value is one clear error
before anything is built. The settings of a run, the options of a selector and the constants of the
simulator's worlds are Sections.

    @dataclasses.dataclass(frozen=True)
    class Loss(Section):
        path = "loss."
        ratio: str = choice("token", "sequence")
        kl_coef: float = number(0.01, at_least=0)
"""

import dataclasses
import difflib
import math
import os
import typing
import urllib.parse
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self


# ------------------------------------------------------------------------------ fields
@dataclasses.dataclass(frozen=True)
class Interval:
    """A range of numbers: `at_least` and `at_most` are inclusive bounds, `above` and `below` exclusive."""

    at_least: float | None = None
    above: float = -math.inf
    at_most: float | None = None
    below: float = math.inf
    why: str = ""  # the reason for the range, added to the error message

    def __contains__(self, value: float) -> bool:
        high_enough = value > self.above if self.at_least is None else value >= self.at_least
        low_enough = value < self.below if self.at_most is None else value <= self.at_most
        return high_enough and low_enough  # NaN is in no interval

    def check(self, name: str, value: float) -> None:
        """Raises ValueError unless `value` is in the interval."""
        if value not in self:
            raise ValueError(f"{name}={value}: must be in {self}")

    def __str__(self) -> str:
        start = f"({self.above:g}" if self.at_least is None else f"[{self.at_least:g}"
        end = f"{self.below:g})" if self.at_most is None else f"{self.at_most:g}]"
        return ", ".join([start, end, self.why] if self.why else [start, end])


def number(default: float, **interval: Any) -> Any:
    """Returns a field for a number in a range; `interval` takes the fields of `Interval`."""
    return dataclasses.field(default=default, metadata={"interval": Interval(**interval)})


# `jax.random.key` silently keeps only the lowest 32 bits of a larger seed, so two seeds could be the same.
SEED = Interval(at_least=0, below=2**32, why="as keys have 32 bits")


def seed() -> Any:
    """Returns a field for a seed, 0 by default."""
    return dataclasses.field(default=0, metadata={"interval": SEED})


def fraction(default: float) -> Any:
    """Returns a field for a number from 0 to 1."""
    return number(default, at_least=0, at_most=1)


def choice(default: str, *others: str) -> Any:
    """Returns a field for one of a few words; the first one is the default."""
    words = tuple(dict.fromkeys((default, *others)))
    return dataclasses.field(default=default, metadata={"words": words})


def location() -> Any:
    """Returns a field for a path, empty by default.

    A leading "~" becomes the home directory. A shell expands it only at the start of a word, not after
    the "=" of a flag.
    """
    return dataclasses.field(default="", metadata={"is_path": True})


def mapping(**default: Any) -> Any:
    """Returns a field for a mapping with any keys; `default` is its default value."""
    return dataclasses.field(default_factory=lambda: dict(default))


class Section:
    """A dataclass of checked fields. `path` is the prefix of their names in messages, such as "loss."."""

    path: ClassVar[str] = ""
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __post_init__(self):
        for field in dataclasses.fields(self):
            name, value = self.path + field.name, getattr(self, field.name)
            check_type(name, value, field.type)
            if field.metadata.get("is_path"):
                object.__setattr__(self, field.name, os.path.expanduser(value))
            if "interval" in field.metadata:
                field.metadata["interval"].check(name, value)
            if "words" in field.metadata:
                check_word(name, value, field.metadata["words"])

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Returns a section from nested mappings; fields that `values` leaves out get their defaults.

        Raises:
            ValueError: a field is unknown, or a value has the wrong type or is out of its range.
        """
        fields = {field.name: field for field in dataclasses.fields(cls)}
        parsed = {}
        for name, value in values.items():
            if name not in fields:
                raise ValueError(
                    f"there is no setting {cls.path + name!r}: {did_you_mean(name, fields)}"
                    f"known are {', '.join(sorted(fields))}"
                )
            kind = fields[name].type
            if isinstance(value, Mapping) and isinstance(kind, type) and issubclass(kind, Section):
                value = kind.from_dict(value)
            elif typing.get_origin(kind) is tuple and isinstance(value, list):
                value = tuple(value)  # JSON has no tuples
            parsed[name] = value
        return cls(**parsed)

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as nested plain dicts, from which `from_dict` makes an equal section."""
        return dataclasses.asdict(self)


# ------------------------------------------------------------------------------ checks
def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a hint for an unknown name: "did you mean" the nearest known one, or ""."""
    known = list(known)
    close = difflib.get_close_matches(name, known, 1)
    return f"did you mean {close[0]!r}? " if close else ""


def check_word(name: str, value: Any, words: Iterable[Any]) -> None:
    """Raises ValueError unless `value` is one of `words`; the message suggests the nearest one."""
    if value not in words:
        known = [str(word) for word in words]
        hint = did_you_mean(str(value), known)
        shown = ", ".join(word or '""' for word in known)
        raise ValueError(f"{name}={value!r}: {hint}known are {shown}")


def check_type(name: str, value: Any, kind: Any) -> None:
    """Raises ValueError unless `value` is of the type `kind`: a class, or a generic like tuple[str, ...]."""
    parts = typing.get_args(kind)
    kind = typing.get_origin(kind) or kind
    accepted = (int, float) if kind is float else kind
    # bool is an int in Python, but `num_steps=True` is a mistake.
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind in (int, float)):
        raise ValueError(
            f"{name}={value!r}: must be of type {kind.__name__.lower()}, not {type(value).__name__}"
        )
    if isinstance(value, tuple) and kind is tuple and parts[1:] == (...,):
        for i, part in enumerate(value):
            check_type(f"{name}[{i}]", part, parts[0])


def check_url(setting: str, url: str) -> None:
    """Raises ValueError unless `url` is a server's URL without a secret, which logs would show."""
    parts = urllib.parse.urlsplit(url)
    if "@" in url or parts.query:
        raise ValueError(
            f"{setting} has a user, a password or a query in its URL, which logs would show: give a key by the "
            "name of an environment variable (api_key_env)"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{setting}: {url!r} is not the URL of a server: write http://host:port")
