"""Single fields of a request: of the right type and in their range, or refused by name."""

import math
from collections.abc import Mapping
from typing import Any

from experiments.serving.api_error import bad


def whole(
    body: Mapping[str, Any], name: str, default: int | None, low: int, high: float
) -> int | None:
    """Returns a whole number of `low` .. `high`; raises ApiError for anything else."""
    value = body.get(name, default)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if name in body and (isinstance(value, bool) or not isinstance(value, int)):
        raise bad(name, f"{name}={value!r:.100}: give a whole number")
    return _within(name, value, low, high)


def number(
    body: Mapping[str, Any], name: str, default: float, low: float, high: float
) -> float:
    """Returns a number of `low` .. `high`; raises ApiError for anything else."""
    value = body.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad(name, f"{name}={value!r:.100}: give a number")
    return float(_within(name, value, low, high))


def flag(body: Mapping[str, Any], name: str) -> bool:
    """Returns whether a field is there and true; raises ApiError for anything else."""
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise bad(name, f"{name}={value!r:.100}: give true or false")
    return value


def texts(body: Mapping[str, Any], name: str, most: int) -> tuple[str, ...]:
    """Returns a text or a list of them as a tuple; raises ApiError for anything else."""
    found = body.get(name, [])
    found = [found] if isinstance(found, str) else found
    if not isinstance(found, list) or not all(isinstance(x, str) and x for x in found):
        raise bad(name, f"{name}: give a text, or a list of texts that are not empty")
    if len(found) > most:
        raise bad(name, f"{name}: {len(found)} texts, at most {most} are taken")
    return tuple(found)


def _within(name, value, low, high):
    if value is not None and not low <= value <= high:  # NaN is not
        limit = f"at least {low}" if high == math.inf else f"in {low} .. {high}"
        raise bad(name, f"{name}={value}: must be {limit}")
    return value
