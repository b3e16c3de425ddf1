"""Built-in questions, most of them about pictures, made on demand from (seed, split, index) without files.

    source = Procedural(seed=0, size=4096)
    item = source[17]  # the same picture, question and answer on every machine

For a given mixture and image size, an item depends only on (seed, split, index), which select its Philox
stream. So it is the same on every machine, whatever the size of the source. The families are in `scenes`,
`diagrams`, `handwriting` and `texts`; `canvas` draws.
"""

import collections
import dataclasses
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vade_jax import types
from vade_jax.data import sources
from vade_jax.data.procedural import canvas, diagrams, handwriting, scenes, texts
from vade_jax.rewards import verify

HANDWRITTEN = "handwritten"
# name: (make(rng, level, size) -> Sample, number of levels, stratum)
FAMILIES = {
    "color": (scenes.color, 4, "graded"),
    "shape": (scenes.shape, 4, "graded"),
    "count": (scenes.count, 4, "graded"),
    "compare": (scenes.compare, 3, "graded"),
    "subtract": (scenes.subtract, 3, "graded"),
    "value": (diagrams.value, 3, "graded"),
    "extreme": (diagrams.extreme, 3, "graded"),
    "triangle": (diagrams.triangle, 4, "graded"),
    "table": (diagrams.table, 4, "graded"),
    "written": (diagrams.written, 1, "trivial"),
    "hidden": (diagrams.hidden, 1, "impossible"),
    "letter": (scenes.letter, 4, "rule"),
    "initials": (scenes.initials, 2, "rule"),
    "plus": (texts.plus, 4, "text"),
    "minus": (texts.minus, 4, "text"),
    "times": (texts.times, 3, "text"),
    "following": (texts.following, 3, "text"),
    "letters": (texts.letters, 1, "text"),
    "story": (texts.story, 2, "text"),
    "numbers": (texts.numbers, 4, "text"),
    # These families use scans, and which scans depends on the split: make(rng, level, size, split).
    "read": (handwriting.read, 3, HANDWRITTEN),
    "add": (handwriting.add, 3, HANDWRITTEN),
    "largest": (handwriting.largest, 3, HANDWRITTEN),
    "larger": (handwriting.larger, 3, HANDWRITTEN),
    "spell": (handwriting.spell, 3, HANDWRITTEN),
}

# Weights of (family, level) pairs, which may also be written "family_level", or of strata, whose weight is
# divided among their members. They need not sum to 1.
DEFAULT_MIXTURE = {
    ("color", 0): 24,
    ("color", 1): 2,
    ("shape", 0): 2,
    ("count", 0): 32,
    ("count", 1): 14,
    ("compare", 0): 1,
    ("subtract", 0): 12,
    ("value", 0): 1,
    ("value", 2): 1,
    ("extreme", 0): 1,
    ("triangle", 0): 1,
    ("table", 0): 2,
    "trivial": 1,
    "impossible": 6,
}

SPLITS = ("train", "validation", "warmup")
# A Philox key has two 64-bit halves: the seed, and a number whose top byte is the split. Numbers from 2^62
# on, which no split reaches, are for the choice of wrong gold answers.
_MAX_SIZE = 2**56
_WRONG_GOLDS = 2**62
_SMALLEST = 56  # pixels per side of a picture


def stream(seed: int, split: str, index: int) -> np.random.Generator:
    """Returns the random stream of one item.

    Different (seed, split, index) always have different streams, so no two splits share an item's stream.
    """
    return _philox(seed, SPLITS.index(split) * _MAX_SIZE + index)


def _philox(seed: int, number: int) -> np.random.Generator:
    # As uint64, because NumPy would round a list with a number of 2^63 or more through float64.
    key = np.array([seed, number], np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def expand_mixture(
    mixture: Mapping[Any, float] | None = None,
) -> dict[tuple[str, int], float]:
    """Returns the probability of each (family, level); a stratum's weight is divided among its members.

    An empty mixture, or None, stands for the default one.

    Raises:
        ValueError: an unknown family, level or stratum, weights that cannot be normalised, or a
            handwritten family without scikit-learn.
    """
    mixture = mixture or DEFAULT_MIXTURE
    members = collections.defaultdict(list)
    for family, (_, num_levels, stratum) in FAMILIES.items():
        members[stratum] += [(family, level) for level in range(num_levels)]
    known = {pair for pairs in members.values() for pair in pairs}
    weights = {}
    for key, weight in mixture.items():
        pairs = [tuple(key)]
        if isinstance(key, str):
            family, _, level = key.rpartition("_")
            pairs = members.get(key, [(family, int(level))] if level.isdecimal() else [])
        if not pairs or not known.issuperset(pairs):
            levels = {name: num for name, (_, num, _) in FAMILIES.items()}
            raise ValueError(
                f"mixture has no part {key!r}; use a stratum of {list(members)} or "
                f"(family, level) with level below {levels}"
            )
        for pair in pairs:
            weights[pair] = weights.get(pair, 0) + weight / len(pairs)
    scanned = [f for f, _ in weights if FAMILIES[f][2] == HANDWRITTEN]
    if scanned and not handwriting.is_installed():
        raise ValueError(
            f"{scanned[0]!r} is made of scikit-learn's digits: pip install -e '.[digits]'"
        )
    total = sum(weights.values())
    if not total > 0 or min(weights.values()) < 0 or total == float("inf"):
        raise ValueError(f"mixture weights {dict(mixture)} must be >= 0, not all 0")
    return {pair: weight / total for pair, weight in weights.items()}


# ------------------------------------------------------------------------------ items
class Procedural(Sequence[types.Item]):
    """A `Source` of questions of several families and levels.

    Args:
        seed: the seed of all streams, 0 .. 2^64 - 1.
        size: number of items; a larger source starts with the items of a smaller one.
        split: "train", "validation" or "warmup".
        mixture: weights of families and levels, see `expand_mixture`.
        image_size: pixels per side, a multiple of 28 and at least 56.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        seed: int,
        size: int,
        split: str = "train",
        mixture: Mapping[Any, float] | None = None,
        image_size: int = 112,
    ):
        if split not in SPLITS:
            raise ValueError(f"split={split!r} must be one of {SPLITS}")
        if not 0 < size < _MAX_SIZE:
            raise ValueError(f"size={size} must be positive")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed={seed} must be in 0 .. 2^64 - 1")
        if image_size < _SMALLEST or image_size % 28:
            raise ValueError(
                f"image_size={image_size} must be a multiple of 28, at least {_SMALLEST}"
            )
        weights = expand_mixture(mixture)
        self._seed, self._size, self._split = seed, size, split
        self._pairs, self._image_size = list(weights), image_size
        self._cumulative = np.cumsum(list(weights.values()))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> types.Item:
        index = operator.index(index)
        if not 0 <= index < self._size:
            raise IndexError(f"index {index} is outside 0 .. {self._size - 1}")
        rng = stream(self._seed, self._split, index)
        pair = np.searchsorted(self._cumulative, rng.random() * self._cumulative[-1])
        family, level = self._pairs[pair]
        stratum = FAMILIES[family][2]
        sample = _make(family, rng, level, self._image_size, self._split)
        return types.Item(
            uid=f"{self._split}-{self._seed}-{index}",
            question=sample.question,
            images=() if sample.image is None else (sample.image,),
            answer=sample.answer,
            kind=sample.kind,
            metadata={"family": family, "level": level, "stratum": stratum, **sample.metadata},
        )


def _make(
    family: str, rng: np.random.Generator, level: int, size: int, split: str
) -> canvas.Sample:
    make, _, stratum = FAMILIES[family]
    own: dict[str, Any] = {"split": split} if stratum == HANDWRITTEN else {}
    return make(rng, level, size, **own)


def draw_again(item: types.Item) -> canvas.Sample:
    """Returns the sample that an item of `Procedural` was made from; the mixture need not be known.

    Raises:
        ValueError: the item is not one of the built-in data.
    """
    try:
        split, seed, index = item.uid.split("-")
        family = item.metadata["family"]
        rng = stream(int(seed), split, int(index))
    except (ValueError, KeyError) as error:
        raise ValueError(f"{item.uid!r} is no item of the built-in data") from error
    rng.random()  # the first draw chose the family and level
    size = item.images[0].width if item.images else _SMALLEST
    sample = _make(family, rng, item.metadata["level"], size, split)
    assert sample.question == item.question, f"{item.uid} is drawn in another way"
    return sample


def target_text(item: types.Item) -> str:
    r"""Returns the right answer in the form in which a model writes it: \boxed{7}."""
    return f"\\boxed{{{item.answer}}}"


# ------------------------------------------------------------------------------ wrong on purpose
class Mislabelled(Sequence):
    """A built-in source in which a share of the items has a wrong gold answer, as in real data sets.

    A policy that can see never gives the wrong gold answer, so a selector that returns to such an item
    wastes its rollouts. The wrong gold answer is that of another question of the same family and level, so
    only the picture shows that it is wrong.

    Which items are mislabelled does not depend on the size of the source. An item that is mislabelled at a
    small share is also mislabelled at a larger one. The metadata of these items have `mislabelled` and the
    `right_answer`. Nothing else differs from `source`.

    Args:
        source: items of `Procedural`.
        share: the probability that an item is mislabelled, 0 .. 1.
        seed: the seed of a separate random stream, which decides the items and their gold answers.

    Raises:
        ValueError: the share is not in 0 .. 1.
    """

    def __init__(self, source: sources.Source, share: float, seed: int):
        if not 0 <= share <= 1:
            raise ValueError(f"share={share} must be in 0 .. 1")
        self._source, self._share, self._seed = source, share, seed

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> types.Item:
        item, rng = self._source[index], self._stream(index)
        if rng.random() >= self._share:
            return item
        metadata = {"mislabelled": True, "right_answer": item.answer}
        return dataclasses.replace(
            item, answer=_wrong(item, rng), metadata={**item.metadata, **metadata}
        )

    def count(self) -> int:
        """Returns how many items have a wrong gold answer."""
        return sum(self._stream(index).random() < self._share for index in range(len(self)))

    def _stream(self, index: int) -> np.random.Generator:
        return _philox(self._seed, _WRONG_GOLDS + int(index))


def _wrong(item: types.Item, rng: np.random.Generator) -> str:
    """Returns a wrong answer of the item's family and level.

    It draws answers until one comes that the verifier does not accept for the right one, nor the right one
    for it.
    """
    family, level = item.metadata["family"], item.metadata["level"]
    while True:
        answer = _make(family, rng, level, _SMALLEST, "train").answer  # only the answer is used
        other = dataclasses.replace(item, answer=answer)
        pairs = (item, other), (other, item)
        if not any(verify.verify_item(target_text(a), b).correct for a, b in pairs):
            return answer


class Teacher:
    """Writes the answers that the warm start imitates; in some families many of them are wrong.

    If all answers of the warm start were right, RL could only improve what the policy cannot see. With some
    wrong answers, the policy knows more than it shows, like a pretrained model: the right answer is the
    most likely one, but the policy does not always give it.

    Args:
        source: items whose answers replace right ones within the same family and level.
        noise: {"family_level": probability that an answer is replaced}; all others are right.
        seed: the seed of the draws.
    """

    def __init__(self, source: sources.Source, noise: Mapping[str, float], seed: int):
        self._noise, self._seed = dict(noise), seed
        self._stand_ins = collections.defaultdict(list)
        for i in range(min(len(source), 2000)):
            item = source[i]
            self._stand_ins[_family_level(item)].append(item)
        for kind in noise:
            if kind not in self._stand_ins:  # too rare to be among the items of `source` above
                self._stand_ins[kind] = [
                    *map(Procedural(seed, 100, "warmup", {kind: 1.0}).__getitem__, range(100))
                ]

    def __call__(self, item: types.Item, index: int) -> str:
        """Returns the teacher's answer to `item`, which has the number `index`."""
        rng = _philox(self._seed, index)
        if rng.random() < self._noise.get(_family_level(item), 0.0):
            stand_ins = self._stand_ins[_family_level(item)]
            item = stand_ins[rng.integers(len(stand_ins))]
        return target_text(item)


def _family_level(item: types.Item) -> str:
    return f"{item.metadata['family']}_{item.metadata['level']}"
