"""Answers for a supervised warm start, some of them wrong on purpose."""

import collections
from collections.abc import Mapping, Sequence

from vade_jax.data.procedural import streams
from vade_jax.types import Item


def target_text(item: Item) -> str:
    r"""Returns the right answer as a model writes it: \boxed{7}."""
    return f"\\boxed{{{item.answer}}}"


class Teacher:
    """Writes the answers that the warm start imitates; of some families often wrong ones.

    A policy that has seen every answer right has nothing to gain from a reward but what it cannot
    see. This one knows more than it says, as a pretrained model does: the right answer is the most
    likely one, and not yet the one it gives.

    Args:
        source: items whose answers stand in for right ones, drawn within a family and level.
        noise: for "family_level", the probability of a stand-in; the rest is always right.
        seed: of the draws.
    """

    def __init__(self, source: Sequence[Item], noise: Mapping[str, float], seed: int):
        self._noise, self._seed = dict(noise), seed
        self._stand_ins = collections.defaultdict(list)
        for i in range(min(len(source), 2000)):
            item = source[i]
            self._stand_ins[_family_level(item)].append(item)

    def __call__(self, item: Item, index: int) -> str:
        """Returns what the teacher writes under item number `index`."""
        rng = streams.philox(self._seed, index)
        if rng.random() < self._noise.get(_family_level(item), 0.0):
            stand_ins = self._stand_ins[_family_level(item)]
            item = stand_ins[rng.integers(len(stand_ins))]
        return target_text(item)


def _family_level(item: Item) -> str:
    return f"{item.metadata['family']}_{item.metadata['level']}"
