"""Built-in items some of which are graded against a wrong answer, as in real data sets.

A prompt whose gold is wrong is never answered right by a policy that sees; a selector that keeps
returning to it wastes its rollouts.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from vade_jax.data.procedural import mixture, streams
from vade_jax.data.procedural.teacher import target_text
from vade_jax.rewards import verify
from vade_jax.types import Item

_STREAM = 2**62  # above the streams of the items themselves


class Mislabelled(Sequence):
    """A built-in source of which a share of the items has a wrong gold, the same ones every time.

    A wrong gold is the answer to another question of the same family and level, so only the picture
    tells that it is wrong. Item i is mislabelled or not whatever the size of the source, and one
    that is at a small share is at a larger one too. Its metadata say `mislabelled` and keep the
    `right_answer`; everything else about it, and every other item, is as in `source`.

    Args:
      source: items of `Procedural`.
      share: the probability that an item is mislabelled, 0 .. 1.
      seed: of which items and which golds, a random stream of its own.
    """

    def __init__(self, source: Sequence[Item], share: float, seed: int):
        if not 0 <= share <= 1:
            raise ValueError(f"share={share} must be in 0 .. 1")
        self._source, self._share, self._seed = source, share, seed

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Item:
        item, rng = self._source[index], self._stream(index)
        if rng.random() >= self._share:
            return item
        metadata = {"mislabelled": True, "right_answer": item.answer}
        return dataclasses.replace(
            item, answer=_wrong(item, rng), metadata={**item.metadata, **metadata}
        )

    def count(self) -> int:
        """Returns how many items have a wrong gold."""
        return sum(
            self._stream(index).random() < self._share for index in range(len(self))
        )

    def _stream(self, index: int) -> np.random.Generator:
        return streams.philox(self._seed, _STREAM + int(index))


def _wrong(item: Item, rng: np.random.Generator) -> str:
    """Draws answers of the family and level until neither passes for the other."""
    make, _, _ = mixture.FAMILIES[item.metadata["family"]]
    while True:
        answer = make(rng, item.metadata["level"], 56).answer
        other = dataclasses.replace(item, answer=answer)
        pairs = (item, other), (other, item)
        if not any(verify.verify_item(target_text(a), b).correct for a, b in pairs):
            return answer
