"""Flat answers, group by group: joined, taken in another order, dropped."""

from collections.abc import Sequence
from typing import TypeVar

import jax
import numpy as np

from vade_jax.types import Array, Rollouts

T = TypeVar("T")


def drop(rollouts: Rollouts, keep_M: np.ndarray) -> Rollouts:
    """Returns the rollouts with the groups that are not kept marked invalid."""
    keep_N = np.asarray(keep_M)[rollouts.group_N]
    return rollouts.replace(valid_N=rollouts.valid_N & keep_N)


def take(rollouts: Rollouts, order_M: Array) -> tuple[Rollouts, np.ndarray]:
    """Returns the groups of `order_M`, in that order, and the answers `order_N` that these are.

    A group may be taken several times.
    """
    num_groups = int(np.max(order_M)) + 1
    first_M = np.searchsorted(rollouts.group_N, np.arange(num_groups + 1))
    order_N = np.concatenate([np.arange(first_M[m], first_M[m + 1]) for m in order_M])
    group_N = np.repeat(np.arange(len(order_M)), np.diff(first_M)[order_M])
    version = rollouts.params_version
    taken = jax.tree.map(lambda x: x[order_N], rollouts.replace(params_version=None))
    taken = taken.replace(group_N=group_N.astype(np.int32), params_version=version)
    return taken, order_N


def join(parts: Sequence[T], num_groups: Sequence[int]) -> T:
    """Returns several `Rollouts`, or several `Feedback`, as one.

    Args:
        parts: of the same weights; fields are joined along their first axis.
        num_groups: groups of each; `group_N` counts on.
    """
    first_P = np.cumsum([0, *num_groups[:-1]], dtype=np.int32)
    parts = [
        part.replace(group_N=np.asarray(part.group_N) + first)
        for part, first in zip(parts, first_P, strict=True)
    ]
    one = lambda *x: x[0] if np.ndim(x[0]) == 0 else np.concatenate(x)
    return jax.tree.map(one, *parts)
