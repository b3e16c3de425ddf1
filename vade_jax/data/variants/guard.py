"""A variant is graded like its item, or it is none."""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np

from vade_jax.types import Item

MakeVariant = Callable[[Item, float, float, np.random.Generator], tuple[Item, float]]


def graded(item: Item) -> tuple[Any, ...]:
    """Returns all that the verifier reads of an item."""
    more = (item.metadata.get(name) for name in ("tolerance", "choices"))
    return item.answer, item.kind, *map(repr, more)


class Guarded:
    """Your own way to make variants, without those that change the answer.

    In the place of such a one comes the item itself, with its own difficulty.

    Attributes:
        counts: "changed_answer", the variants that were not taken.
    """

    def __init__(self, vary: MakeVariant):
        self._vary = vary
        self.counts: collections.Counter[str] = collections.Counter()

    def __call__(
        self, item: Item, difficulty: float, wanted: float, rng: np.random.Generator
    ) -> tuple[Item, float]:
        """Returns the variant and its difficulty, or the item and its own."""
        variant, own = self._vary(item, difficulty, wanted, rng)
        if graded(variant) == graded(item):
            return variant, own
        self.counts["changed_answer"] += 1
        return item, float(difficulty)
