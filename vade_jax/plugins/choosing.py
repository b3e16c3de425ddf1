"""Code that the plugins share: it makes a selector for another trainer's rows and counts its answers."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax import samplers
from vade_jax.selector import Selector

LACKS = ("uneven", "weights")  # what other trainers cannot give a selector


def make_selector(
    ids: Sequence[Any],
    name: str,
    *,
    seed: int,
    num_rollouts: int,
    options: Mapping[str, Any] | None = None,
    category: Sequence[Any] | None = None,
    by_step: bool = True,
) -> Selector:
    """Returns a selector for a trainer that rolls out `num_rollouts` answers to each row.

    Args:
        ids: the id of every row, the same in every run.
        name: name of the selector, a key of `samplers.SAMPLERS` or a user's own (path/to/file.py:NAME).
        seed: seed of the draws, unless `options` has one.
        num_rollouts: answers to each row.
        options: further arguments of `Selector`, such as `decay_rest` or `arrays`.
        category: the category of every row, a name or a number, for selectors that take it.
        by_step: whether the trainer observes the groups of each step all together.

    Raises:
        ValueError: as `Selector`, or the selector cannot work here.
    """
    arguments: dict[str, Any] = {"seed": seed, **(options or {})}
    if category is not None:
        arguments["arrays"] = {**arguments.get("arrays", {}), "category": list(category)}
    selector = Selector(ids, name, num_rollouts=num_rollouts, **arguments)
    # Another trainer only asks for rows. Where groups come back one by one, a selector that takes their
    # number for the size of the batch cannot work; the same holds for passes over all items.
    arrays = arguments.get("arrays", ())
    samplers.require(name, selector.needs, arrays=arrays, passes=not by_step, lacks=LACKS)
    return selector


def observe(selector: Selector, ids_N: Sequence[Any], right_N: np.ndarray) -> float:
    """Tells the selector which answers were right, and returns the share of mixed groups; see `counted`."""
    ids, right_M, trials_M = counted(ids_N, right_N)
    selector.observe(ids, right_M, trials_M)
    return mixed_share(right_M, trials_M)


def counted(ids_N: Sequence[Any], right_N: np.ndarray) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """Returns rows, and the right and the valid answers to each.

    `ids_N` is the row of each answer. `right_N` is 1 for a right answer, 0 for a wrong one, and NaN if
    there is no verdict; answers without a verdict do not count.
    """
    ids = list(dict.fromkeys(ids_N))
    place = {name: m for m, name in enumerate(ids)}
    group_N = np.array([place[name] for name in ids_N])
    judged_N = ~np.isnan(right_N)
    trials_M = np.bincount(group_N, judged_N, len(ids)).astype(int)
    right_M = np.bincount(group_N, np.where(judged_N, right_N, 0), len(ids))
    return ids, right_M, trials_M


def mixed_share(right_M: np.ndarray, trials_M: np.ndarray) -> float:
    """Returns the share of groups with right and wrong answers."""
    return float(np.mean((right_M > 0) & (right_M < trials_M)))


def above(score: np.ndarray, threshold: float) -> np.ndarray:
    """Returns 1 where the score is above `threshold`, 0 where it is not, and NaN where it is NaN."""
    return np.where(np.isnan(score), np.nan, score > threshold)
