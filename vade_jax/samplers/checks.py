"""A selector's hyperparameters: one clear error for each that is out of its range."""

from typing import Any

import numpy as np


def num_rollouts(num_rollouts: int) -> None:
    """Raises ValueError unless a group has at least two answers."""
    if num_rollouts < 2:
        raise ValueError(
            f"num_rollouts={num_rollouts}: one answer cannot be compared with its group;"
            " set num_rollouts to at least 2"
        )


def num_prompts(num_prompts: int, num_items: int) -> None:
    """Raises ValueError unless so many different items exist."""
    if not 1 <= num_prompts <= num_items:
        raise ValueError(
            f"cannot choose {num_prompts} prompts of a data set of {num_items}:"
            f" set the prompts per step (B) to a value from 1 to {num_items}"
        )


def per_item(
    method: str, name: str, values: Any, num_items: int, hint: str = ""
) -> None:
    """Raises ValueError unless `values` has one entry for each of `num_items` items."""
    if values is None:
        raise ValueError(
            f"{method} needs the {name} of every item:"
            f" call init({num_items}, {name}=...) with {num_items} values{hint}"
        )
    if np.shape(values) != (num_items,):
        raise ValueError(
            f"{name} has shape {np.shape(values)}: give one value for each of the"
            f" {num_items} items"
        )


def option(name: str, value: Any, options: Any) -> None:
    """Raises ValueError unless `value` is one of `options`."""
    if value not in options:
        raise ValueError(f"{name}={value!r}: choose one of {sorted(options)}")


def fraction(name: str, value: float) -> None:
    """Raises ValueError unless `value` lies in [0, 1]."""
    within(name, value, 0, 1)


def within(name: str, value: float, low: float, high: float) -> None:
    """Raises ValueError unless `value` lies in [low, high]."""
    if not low <= value <= high:
        raise ValueError(f"{name}={value}: set it to a value from {low} to {high}")


def at_least(name: str, value: float, low: float) -> None:
    """Raises ValueError unless `value` is finite and at least `low`."""
    if not low <= value < float("inf"):
        raise ValueError(f"{name}={value}: set it to at least {low}")


def positive(name: str, value: float) -> None:
    """Raises ValueError unless `value` is finite and above 0."""
    if not 0 < value < float("inf"):
        raise ValueError(f"{name}={value}: set it to a value above 0")
