"""Built-in questions, most of them about pictures, made on demand from (seed, split, index) without files.

    source = Procedural(seed=0, size=4096)
    item = source[17]  # the same picture, question and answer on every machine

For a given mixture, an item depends only on (seed, split, index), which select its Philox stream. So it is
the same on every machine, whatever the size of the source. The families are in `scenes`, `diagrams`,
`handwriting` and `texts`; `canvas` draws. A family is a function (rng, level) -> `canvas.Sample`. The order
of its draws from `rng` is part of the data: with another order, the same seed gives another data set.
"""

import dataclasses
import itertools
import operator
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from vade_jax import types
from vade_jax.data import sources
from vade_jax.data.procedural import canvas, diagrams, handwriting, scenes, texts
from vade_jax.rewards import verify

# name: (function, number of levels, stratum)
FAMILIES: dict[str, tuple[Callable[..., canvas.Sample], int, str]] = {
    "color": (scenes.color, 4, "graded"),
    "shape": (scenes.shape, 4, "graded"),
    "count": (scenes.count, 2, "graded"),
    "compare": (scenes.compare, 2, "graded"),
    "subtract": (scenes.subtract, 2, "graded"),
    "value": (diagrams.value, 3, "graded"),
    "extreme": (diagrams.extreme, 3, "graded"),
    "triangle": (diagrams.triangle, 4, "graded"),
    "table": (diagrams.table, 3, "graded"),
    "written": (diagrams.written, 1, "trivial"),
    "hidden": (diagrams.hidden, 1, "impossible"),
    "letter": (scenes.letter, 4, "rule"),
    "initials": (scenes.initials, 2, "rule"),
    "plus": (texts.plus, 4, "text"),
    "minus": (texts.minus, 4, "text"),
    "times": (texts.times, 3, "text"),
    "following": (texts.following, 3, "text"),
    "letters": (texts.letters, 1, "text"),
    "story": (texts.story, 1, "text"),
    "numbers": (texts.numbers, 4, "text"),
    # Which scans these use depends on the split: (rng, level, split) -> Sample.
    "read": (handwriting.read, 1, "handwritten"),
    "spell": (handwriting.spell, 3, "handwritten"),
}
PARTS = {
    f"{family}_{level}": (family, level)
    for family, (_, num_levels, _) in FAMILIES.items()
    for level in range(num_levels)
}
DEFAULT_MIXTURE = {  # weights of parts, which need not sum to 1
    **{"color_0": 24, "color_1": 2, "shape_0": 2, "count_0": 32, "count_1": 14, "compare_0": 1},
    **{"subtract_0": 12, "value_0": 1, "value_2": 1, "extreme_0": 1, "triangle_0": 1},
    **{"table_0": 2, "written_0": 1, "hidden_0": 6},
}

# The top byte of the second half of an item's Philox key; the first half is the seed.
SPLITS = {"train": 0, "validation": 1, "warmup": 2}
_WRONG_GOLDS = 64  # instead of a split, for the choice of wrong gold answers


def stream(seed: int, split: int, index: int) -> np.random.Generator:
    """Returns the random stream of one item; `split` is a value of `SPLITS`. No two arguments share one."""
    # As uint64, because NumPy would round a list with a number of 2^63 or more through float64.
    key = np.array([seed, split * 2**56 + index], np.uint64)
    return np.random.Generator(np.random.Philox(key=key))


def expand_mixture(mixture: Mapping[str, float] | None = None) -> dict[str, float]:
    """Returns the probability of each "family_level"; an empty mixture means the default one.

    Raises:
        ValueError: an unknown part, or weights that cannot be normalised.
    """
    mixture = mixture or DEFAULT_MIXTURE
    if unknown := [part for part in mixture if part not in PARTS]:
        raise ValueError(f"mixture has no part {unknown[0]!r}; use some of {', '.join(PARTS)}")
    total = sum(mixture.values())
    if not 0 < total < float("inf") or min(mixture.values()) < 0:
        raise ValueError(f"mixture weights {dict(mixture)} must be >= 0, not all 0")
    return {part: weight / total for part, weight in mixture.items()}


# ------------------------------------------------------------------------------ items
class Procedural(Sequence[types.Item]):
    """A `Source` of questions of several families and levels.

    With `wrong_golds`, a share of the items has a wrong gold answer, as in real data sets: that of another
    question of the same family and level, so only the picture shows that it is wrong. The metadata of these
    items have `mislabelled` and the `right_answer`; nothing else differs. Which items they are does not
    depend on the size of the source, and those of a small share are also among those of a larger one.

    Args:
        seed: the seed of all streams, 0 .. 2^64 - 1.
        size: number of items; a larger source starts with the items of a smaller one.
        split: "train", "validation" or "warmup".
        mixture: weights of families and levels, see `expand_mixture`.
        wrong_golds: the probability that an item has a wrong gold answer, 0 .. 1.
    """

    def __init__(
        self,
        seed: int,
        size: int,
        split: str = "train",
        mixture: Mapping[str, float] | None = None,
        wrong_golds: float = 0.0,
    ):
        weights = expand_mixture(mixture)
        self._seed, self._size = operator.index(seed), operator.index(size)
        self._split, self._share = split, wrong_golds
        self._parts, self._cumulative = list(weights), np.cumsum(list(weights.values()))

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> types.Item:
        index = operator.index(index)
        if not 0 <= index < self._size:
            raise IndexError(f"index {index} is outside 0 .. {self._size - 1}")
        rng = stream(self._seed, SPLITS[self._split], index)
        place = np.searchsorted(self._cumulative, rng.random() * self._cumulative[-1])
        family, level = PARTS[self._parts[place]]
        sample = _make(family, rng, level, self._split)
        stratum = FAMILIES[family][2]
        item = types.Item(
            uid=f"{self._split}-{self._seed}-{index}",
            question=sample.question,
            images=() if sample.image is None else (sample.image,),
            answer=sample.answer,
            kind=sample.kind,
            metadata={"family": family, "level": level, "stratum": stratum, **sample.metadata},
        )
        rng = stream(self._seed, _WRONG_GOLDS, index)
        return _mislabelled(item, rng) if rng.random() < self._share else item


def _make(family: str, rng: np.random.Generator, level: int, split: str) -> canvas.Sample:
    make, _, stratum = FAMILIES[family]
    return make(rng, level, split) if stratum == "handwritten" else make(rng, level)


def _mislabelled(item: types.Item, rng: np.random.Generator) -> types.Item:
    """Returns an item with a wrong gold answer.

    It draws answers of the item's family and level until the verifier does not accept one for the right one,
    nor vice versa.
    """
    family, level = item.metadata["family"], item.metadata["level"]
    metadata = {**item.metadata, "mislabelled": True, "right_answer": item.answer}
    while True:
        answer = _make(family, rng, level, "train").answer
        wrong = dataclasses.replace(item, answer=answer)
        pairs = (item, wrong), (wrong, item)
        if not any(verify.verify_item(target_text(a), b).correct for a, b in pairs):
            return dataclasses.replace(wrong, metadata=metadata)


def draw_again(item: types.Item) -> canvas.Sample:
    """Returns the sample that an item was made from; the mixture need not be known.

    Raises:
        ValueError: the item is not one of the built-in data.
    """
    split, seed, index = item.uid.split("-")
    rng = stream(int(seed), SPLITS[split], int(index))
    rng.random()  # the first draw chose the family and level
    sample = _make(item.metadata["family"], rng, item.metadata["level"], split)
    assert sample.question == item.question, f"{item.uid} is drawn in another way"
    return sample


def target_text(item: types.Item) -> str:
    r"""Returns the right answer in the form in which a model writes it: \boxed{7}."""
    return f"\\boxed{{{item.answer}}}"


# ------------------------------------------------------------------------------ a policy that errs
class Teacher:
    """Writes the answers that the warm start imitates; in some families many of them are wrong.

    If all answers of the warm start were right, RL could only improve what the policy cannot see. With some
    wrong answers it resembles a pretrained model: the right answer is the most likely one, but the policy
    does not always give it.

    Args:
        source: items that supply the wrong answers, within the same family and level.
        noise: {"family_level": probability that an answer is replaced}; all others are right.
        seed: the seed of the draws.
    """

    def __init__(self, source: sources.Source, noise: Mapping[str, float], seed: int):
        self._noise, self._seed, self._answers = dict(noise), seed, {}
        first = [(_part(item), target_text(item)) for item in itertools.islice(source, 2000)]
        for part in noise:
            self._answers[part] = [answer for name, answer in first if name == part]
            if not self._answers[part]:  # too rare to occur in `source`
                alone = Procedural(seed, 100, "warmup", {part: 1.0})
                self._answers[part] = [target_text(item) for item in alone]

    def __call__(self, item: types.Item, index: int) -> str:
        """Returns the teacher's answer to `item`, which has the number `index`."""
        rng = stream(self._seed, SPLITS["train"], index)
        if rng.random() < self._noise.get(_part(item), 0.0):
            answers = self._answers[_part(item)]
            return answers[rng.integers(len(answers))]
        return target_text(item)


def _part(item: types.Item) -> str:
    return f"{item.metadata['family']}_{item.metadata['level']}"
