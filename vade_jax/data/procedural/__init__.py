r"""Built-in questions about pictures, drawn on demand from (seed, split, index): no files.

source = procedural.Procedural(seed=0, size=4096)
item = source[17]  # the same picture, question and answer on every machine
"""

import operator
from collections.abc import Mapping

import numpy as np

from vade_jax import types
from vade_jax.data.procedural import mixture as mixtures
from vade_jax.data.procedural import streams
from vade_jax.data.procedural.mislabelled import Mislabelled
from vade_jax.data.procedural.teacher import Teacher, target_text

__all__ = ["Mislabelled", "Procedural", "Teacher", "stream", "target_text"]

SPLITS = ("train", "validation", "warmup")
_MAX_SIZE = 2**56  # the split is the top byte of the stream's number


def stream(seed: int, split: str, index: int) -> np.random.Generator:
    """Returns the random stream of one item: the Philox key (seed, split and index) names it.

    The three never collide, so no item of one split is drawn again for another.
    """
    return streams.philox(seed, SPLITS.index(split) * _MAX_SIZE + index)


class Procedural:
    """A `Source` of rendered questions of several families and levels.

    Args:
      seed: of all streams, 0 .. 2^64 - 1.
      size: number of items; a larger source starts with the items of a smaller one.
      split: "train", "validation" or "warmup".
      mixture: weights of (family, level) or of a stratum; `mixture.DEFAULT` by default.
      image_size: pixels a side, a multiple of 28.
    """

    def __init__(
        self,
        seed: int,
        size: int,
        split: str = "train",
        mixture: Mapping[tuple[str, int] | str, float] | None = None,
        image_size: int = 112,
    ):
        if split not in SPLITS:
            raise ValueError(f"split={split!r} must be one of {SPLITS}")
        if not 0 < size < _MAX_SIZE:
            raise ValueError(f"size={size} must be positive")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed={seed} must be in 0 .. 2^64 - 1")
        if image_size < 56 or image_size % 28:
            raise ValueError(
                f"image_size={image_size} must be a multiple of 28, at least 56"
            )
        parts = mixtures.expand(mixtures.DEFAULT if mixture is None else mixture)
        self._seed, self._size, self._split = seed, size, split
        self._parts, self._image_size = list(parts), image_size
        self._cumulative = np.cumsum(list(parts.values()))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> types.Item:
        index = operator.index(index)
        if not 0 <= index < self._size:
            raise IndexError(f"index {index} is outside 0 .. {self._size - 1}")
        rng = stream(self._seed, self._split, index)
        part = np.searchsorted(self._cumulative, rng.random() * self._cumulative[-1])
        family, level = self._parts[part]
        make, _, stratum = mixtures.FAMILIES[family]
        sample = make(rng, level, self._image_size)
        return types.Item(
            uid=f"{self._split}-{self._seed}-{index}",
            question=sample.question,
            images=(sample.image,),
            answer=sample.answer,
            kind=sample.kind,
            metadata={
                "family": family,
                "level": level,
                "stratum": stratum,
                **sample.metadata,
            },
        )
