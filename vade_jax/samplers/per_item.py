"""Arrays with one entry per item: those in a state, and those that a selector is initialised with."""

import dataclasses
import re
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from vade_jax.types import Array

S = TypeVar("S")  # the state of one selector


def leaves(state: Any) -> dict[str, Array]:
    """Returns the arrays of a state by name, without None; `base.alpha_I` is one of the wrapped selector."""
    with_path = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in with_path}


def is_per_item(name: str) -> bool:
    """Returns whether the first axis of an array with this name is the items."""
    return re.search(r"_I[A-Z0-9]*$", name) is not None


def starts(value: float | np.unsignedinteger) -> Any:
    """Declares an array of a state by its initial value, a scalar or one entry per item.

    It has an entry per item if its name ends in _I. An integer gives int32, an unsigned one uint32,
    another number float32.
    """
    return dataclasses.field(metadata={"starts": value})


def begin(state: type[S], num_items: int, **others: Any) -> S:
    """Returns a state before the first answer; `others` are its arrays without `starts`."""
    dtypes = {"b": bool, "i": np.int32, "u": np.uint32, "f": np.float32}
    first = {x.name: x.metadata.get("starts") for x in dataclasses.fields(state)}  # pyright: ignore
    arrays = {
        name: np.full(num_items if is_per_item(name) else (), x, dtypes[np.asarray(x).dtype.kind])
        for name, x in first.items()
        if x is not None and name not in others
    }
    return state(**arrays, **others)


# ------------------------------------------------------------------------------ checks
def check_per_item(selector: str, name: str, values: Any, num_items: int) -> None:
    """Raises ValueError unless `values` has one entry for each item, and none of them is None or NaN."""
    if np.shape(values) != (num_items,):
        raise ValueError(
            f"{name} has shape {np.shape(values)}: {selector} needs one value for each of the {num_items} items"
        )
    value_I = np.asarray(values, object)  # an array of strings would turn NaN into "nan"
    if missing := [i for i, value in enumerate(value_I) if value is None or value != value]:
        raise ValueError(
            f"{name} of item {missing[0]} is {value_I[missing[0]]}: {len(missing)} of {num_items} items lack one, "
            f"and {selector} needs it of every item"
        )


def check_vectors(selector: str, name: str, values: Any, num_items: int) -> None:
    """Raises ValueError unless `values` has a row of finite numbers for each item."""
    rows = np.asarray(values)
    is_matrix = rows.ndim == 2 and len(rows) == num_items and rows.size
    if not is_matrix or not np.isfinite(rows).all():
        raise ValueError(
            f"{name} is {list(rows.shape)}: {selector} takes a vector of finite numbers for each of the {num_items} items"
        )


def rates(selector: str, name: str, values: Any, num_items: int) -> np.ndarray:
    """Returns the values as float32; raises ValueError unless each item has a number from 0 to 1."""
    check_per_item(selector, name, values, num_items)
    rate_I = np.asarray(values, np.float32)
    if np.any(is_out := (rate_I < 0) | (rate_I > 1)):
        i = np.argmax(is_out)
        raise ValueError(f"{name} of item {i} is {values[i]}: {selector} takes numbers from 0 to 1")
    return rate_I


def moved_to_means(
    value_A: Array, rate: float, x_N: Array, group_N: Array, counts_N: Array
) -> jax.Array:
    """Returns each value moved by `rate` towards the mean x of its group, or unchanged if no x counts."""
    total = lambda x_N: jax.ops.segment_sum(jnp.where(counts_N, x_N, 0.0), group_N, len(value_A))
    count_A = total(1.0)
    moved_A = value_A + rate * (total(x_N) / jnp.maximum(count_A, 1) - value_A)
    return jnp.where(count_A > 0, moved_A, value_A)


# The metadata that names an item's category: "family,level" in built-in data, "subset" in files.
BY_CATEGORY = "family,level|subset"
# What goes with a selector that takes it
WITH_CATEGORY = {"selector.arrays": {"category": BY_CATEGORY}}


def categories(selector: str, category: Any, num_items: int) -> tuple[np.ndarray, int]:
    """Returns int32 `category_I`, numbered from 0, and the number of categories, A, which may have names.

    Raises:
        ValueError: not every item has a category.
    """
    check_per_item(selector, "category", category, num_items)
    names = np.asarray(category, object).tolist()  # as they are: 1 is not "1"
    known = sorted(set(names), key=lambda name: (isinstance(name, str), name))
    number = {name: i for i, name in enumerate(known)}
    return np.array([number[name] for name in names], np.int32), len(known)
