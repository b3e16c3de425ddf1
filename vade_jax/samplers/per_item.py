"""Arrays with one entry per item: those of a state, and the values that a selector gets."""

import re
from typing import Any

import jax
import numpy as np

from vade_jax.types import Array


def leaves(state: Any) -> dict[str, Array]:
    """Returns the arrays of a state by name, without None; `base.alpha_I` is one of the wrapped selector."""
    with_path = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in with_path}


def is_per_item(name: str) -> bool:
    """Returns whether the first axis of an array with this name is the items."""
    return re.search(r"_I[A-Z0-9]*$", name) is not None


def filled(num_items: int, **values: float) -> dict[str, Any]:
    """Returns arrays that hold each value for every item, or once if the name does not end like `visits_I`.

    They are int32 of integers, float32 of other numbers.
    """
    dtypes = {"b": bool, "i": np.int32, "f": np.float32}
    return {
        name: np.full(num_items if is_per_item(name) else (), x, dtypes[np.asarray(x).dtype.kind])
        for name, x in values.items()
    }


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
    if rows.ndim != 2 or len(rows) != num_items or not rows.size or rows.dtype.kind not in "fiu":
        raise ValueError(
            f"{name} is {rows.dtype}{list(rows.shape)}: {selector} takes a vector of numbers for each of the "
            f"{num_items} items"
        )
    is_finite = np.isfinite(rows).all(axis=1)
    if not is_finite.all():
        raise ValueError(f"{name} of item {np.argmin(is_finite)} has a number that is not finite")


def check_rates(selector: str, name: str, values: Any, num_items: int) -> None:
    """Raises ValueError unless `values` has a number from 0 to 1 for each item."""
    check_per_item(selector, name, values, num_items)
    for i, value in enumerate(np.asarray(values).tolist()):
        if not (isinstance(value, int | float) and 0 <= value <= 1):
            raise ValueError(
                f"{name} of item {i} is {value!r}: {selector} takes numbers from 0 to 1"
            )


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
